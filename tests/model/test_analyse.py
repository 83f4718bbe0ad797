"""A whole study, what it must survive, and studies side by side."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse, compare, unlike_machines
from farandole.study.records import Cell, Launch, Link, Metric, Study
from tests.model.build import (
    MACHINE,
    make_launch,
    make_rank,
    make_steps,
    make_study,
    make_utilisation,
    repeated,
    table_launch,
    timed_launch,
    trained_launch,
)

ONE, TWO, FOUR = (Cell(workers=n, batch=8, threads=2) for n in (1, 2, 4))


def rich_study() -> list[Launch]:
    launches = [one for cell in (ONE, TWO, FOUR) for one in repeated(cell, [0.1, 0.101, 0.099])]
    today = Cell(workers=1, batch=8, threads=8, today=True)
    launches += repeated(today, [0.05, 0.051, 0.049])
    for cell in (ONE, TWO):
        launches += [trained_launch(cell, s, [0.5, 0.8, *[0.9 + 0.001 * s] * 6]) for s in range(3)]
    return launches


def test_everything_is_there() -> None:
    link = Link(peak_bytes_per_s=5e9, allreduce=((2, 1 << 20, 1e-3),))
    info = analyse(
        make_study(rich_study(), link=link, spec={"dataset_size": 3200}),
        price_per_worker_hour=2.0,
        target=("val_accuracy", 0.85),
    )
    assert info.answer.workers == 4
    assert len(info.curves[0].points) == 3
    assert {split.label for split in info.each("split")} >= {"1 worker", "2 workers", "4 workers"}
    assert [found.cell.workers for found in info.each("communication")] == [2, 4]
    assert len(info.link) == 1
    assert [job.steps_per_epoch for job in info.each("job")] == [400, 200, 100]
    assert info.main_metric == "val_accuracy"
    assert [row.target_s for row in info.each("metrics")] == [30.0, 30.0]
    assert info.margins == {"speed": 0.03, "val_accuracy": 0.01}
    costs = {cost.cell.workers: cost for cost in info.each("cost") if not cost.cell.today}
    assert costs[1].to_target == pytest.approx(2.0 * 30 / 3600)
    assert costs[2].to_target == pytest.approx(2 * 2.0 * 30 / 3600)
    assert len(info.launches) == len(rich_study())
    assert [row.launches for row in info.rows] == [3, 3, 3, 3]
    assert info.command == ("python", "train.py")


def test_today_is_compared_with_the_answer() -> None:
    info = analyse(make_study(rich_study()))
    # 4 workers at 0.1 s against one at 0.05 s.
    assert info.today.gain.value == pytest.approx(2.0, rel=1e-3)
    assert "With the recommended 4 workers: 2.00x (" in info.today.sentence


def test_the_order_of_launches_does_not_matter_to_numbers() -> None:
    launches = rich_study()
    forth, back = (analyse(make_study(order)) for order in (launches, launches[::-1]))
    assert forth.answer.headline == back.answer.headline
    assert forth.curves[0].points[2].speedup == pytest.approx(back.curves[0].points[2].speedup)


def assert_no_nan(info: Any) -> None:
    """Walk through a result: what was not measured is None, and never NaN."""
    for field in (one for one in dataclasses.fields(info) if one.name != "measured"):
        value = getattr(info, field.name)
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if dataclasses.is_dataclass(item):
                assert_no_nan(item)
            elif isinstance(item, float):
                assert not math.isnan(item), field.name


HOSTILE: dict[str, list[Launch]] = {
    "nothing": [],
    "all failed": [make_launch(ONE, outcome="failed"), make_launch(TWO, outcome="timeout")],
    "one cell": [timed_launch(TWO, 0.1)],
    "one step": [timed_launch(ONE, 0.1, steps=1), timed_launch(TWO, 0.1, steps=1)],
    "two steps": [timed_launch(ONE, 0.1, steps=2), timed_launch(TWO, 0.1, steps=2)],
    "no ranks": [make_launch(ONE), make_launch(TWO)],
    "no batch": [timed_launch(Cell(workers=n), 0.1) for n in (1, 2)],
    "ranks of unequal length": [
        timed_launch(ONE, 0.1),
        make_launch(TWO, [make_rank(0, make_steps(0.1, 30)), make_rank(1, make_steps(0.1, 9))]),
    ],
    "a rank is missing": [
        timed_launch(ONE, 0.1),
        make_launch(TWO, [make_rank(0, make_steps(0.1))]),
    ],
    "a clock that stands still": [timed_launch(ONE, 0.0), timed_launch(TWO, 0.1)],
    "all NaN": [timed_launch(ONE, float("nan")), timed_launch(TWO, 0.1)],
    "losses that are no numbers": [
        trained_launch(cell, 0, [math.nan, math.inf], name="loss") for cell in (ONE, TWO)
    ],
    "metrics on some cells": [*repeated(ONE, [0.1]), trained_launch(TWO, 0, [0.5, 0.6])],
    "an infinite metric": [table_launch(ONE, {"loss": math.inf}), table_launch(TWO, {"loss": 1.0})],
    "half failed": [timed_launch(ONE, 0.1), make_launch(TWO, outcome="failed", reason="x")],
    "units that do not meet": [table_launch(ONE, epoch_s=3.0), table_launch(TWO, throughput=9.0)],
    "zero figures": [table_launch(ONE, throughput=0.0), table_launch(TWO, throughput=9.0)],
    "a metric without a direction": [
        make_launch(ONE, purpose="accuracy", outcome="ok", metrics=(Metric(name="lr", value=0.1),))
    ],
    "busy": [timed_launch(ONE, 0.1), timed_launch(TWO, 0.1, busy=True)],
    "a short use": [
        make_launch(ONE, [make_rank(0, make_steps(0.1), utilisation=make_utilisation([np.nan]))])
    ],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_comes_there_is_an_info_without_nan(name: str) -> None:
    info = analyse(make_study(HOSTILE[name]), price_per_worker_hour=1.0)
    assert info.answer.headline
    assert info.answer.next
    assert_no_nan(info)


def test_nothing_is_derived_from_workers_that_did_not_train_together() -> None:
    apart = [make_rank(n, make_steps(0.2), bytes_sent={"gradients": 0}) for n in (0, 1)]
    info = analyse(make_study([timed_launch(ONE, 0.1), make_launch(TWO, apart)]))
    (found,) = info.each("communication")
    assert (found.derived_s, found.derived_epoch_s) == (None, None)
    assert found.total_bytes_by_kind == {"gradients": 0}


def test_a_synthetic_benchmark_is_noted() -> None:
    hashes = tuple("abcdefgh") * 4
    ranks = [make_rank(n, make_steps(0.1), sample_hashes=hashes) for n in (0, 1)]
    info = analyse(make_study([timed_launch(ONE, 0.1), make_launch(TWO, ranks)]))
    assert info.answer.void is None
    assert any("synthetic" in note for note in info.notes)


# Several studies


def study_of(label: str, step_s: float, **machine: Any) -> Study:
    launches = [
        launch
        for n in (1, 2)
        for launch in repeated(Cell(workers=n, batch=8), [step_s, 1.01 * step_s, 0.99 * step_s])
    ]
    return make_study(launches, label=label, machine={**MACHINE, **machine})


def test_alike_machines_have_ratios() -> None:
    found = compare([study_of("before", 0.2), study_of("after", 0.1)])
    assert found.refused is None
    assert [ratio[:3] for ratio in found.ratios] == [
        ("after", "before", "1 worker"),
        ("after", "before", "2 workers"),
    ]
    assert found.ratios[0][3].value == pytest.approx(2.0)
    assert [(row.study, row.label) for row in found.rows] == [
        ("before", "1 worker"),
        ("before", "2 workers"),
        ("after", "1 worker"),
        ("after", "2 workers"),
    ]
    assert all(row.speedup is not None for row in found.rows)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({"cpu": "another"}, "cpu: a processor and another"),
        ({"cores": 4}, "cores: 8 and 4"),
        ({"gpus": ["Tesla T4"]}, "gpus"),
        ({"memory_bytes": 64_000_000_000}, "memory_bytes"),
    ],
)
def test_unlike_machines_are_refused_with_the_reason(machine: dict[str, Any], words: str) -> None:
    found = compare([study_of("here", 0.1), study_of("there", 0.1, **machine)])
    assert words in found.refused
    assert found.ratios == ()
    assert len(found.rows) == 4


def test_a_machine_that_nobody_told_of_cannot_be_compared() -> None:
    refused = unlike_machines({"a": {}, "b": MACHINE})
    assert "does not say which machine" in refused
    assert unlike_machines({"a": MACHINE}) is None


def test_a_faster_device_that_gains_nothing_is_found_across_studies() -> None:
    studies = [
        make_study(
            [table_launch(Cell(workers=4, batch=32, device=device), epoch_s=seconds)],
            label=device,
            machine={},
        )
        for device, seconds in (("T4", 81.0), ("V100", 80.0))
    ]
    found = compare(studies)
    assert [verdict.kind for verdict in found.verdicts] == ["faster_device_gains_nothing"]


def test_no_study_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one folder"):
        compare([])

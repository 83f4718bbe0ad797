"""Studies side by side."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.model.compare import compare, unique_labels, unlike_machines
from farandole.study.records import Cell, Study
from tests.model.build import MACHINE, make_study, repeated, table_launch


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
    assert found.refused is not None
    assert words in found.refused
    assert found.ratios == ()
    assert len(found.rows) == 4


def test_a_little_memory_more_and_another_name_are_no_difference() -> None:
    same = {"memory_bytes": 16_100_000_000, "host": "elsewhere"}
    assert compare([study_of("a", 0.1), study_of("b", 0.1, **same)]).refused is None


def test_a_machine_that_nobody_told_of_cannot_be_compared() -> None:
    refused = unlike_machines({"a": {}, "b": MACHINE})
    assert refused is not None
    assert "does not say on which machine" in refused
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


def test_one_study_is_compared_with_nothing() -> None:
    found = compare([study_of("only", 0.1)])
    assert (found.ratios, found.refused) == ((), None)


def test_no_study_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one folder"):
        compare([])


def test_labels_are_told_apart() -> None:
    assert unique_labels(["a", "a", "", "a", ""]) == ["a", "a (2)", "study", "a (3)", "study (2)"]

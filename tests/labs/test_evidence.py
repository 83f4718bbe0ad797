"""Rows and estimates, looked up in studies made by hand."""

from __future__ import annotations

import math

import pytest

from farandole.errors import UsageError
from farandole.labs.evidence import (
    argument,
    batches,
    check_claim,
    counts_in_words,
    final_mean,
    interval_words,
    matching,
    only,
    points,
    seconds_for,
    steps_made,
    void_times,
    without_intervals,
    worker_counts,
)
from farandole.model.analyse import analyse
from farandole.model.statistics import Estimate
from farandole.study.records import Cell
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    repeated,
    timed_launch,
    trained_launch,
)


def cell(workers: int, batch: int = 32, **params: str) -> Cell:
    return Cell(workers=workers, threads=1, batch=batch, params=tuple(params.items()))


LAUNCHES = [
    *repeated(cell(1, recipe="fixed"), [0.10, 0.11]),
    *repeated(cell(2, recipe="fixed"), [0.12, 0.13]),
    *repeated(cell(2, recipe="linear"), [0.14, 0.15]),
    *repeated(cell(2, 64, recipe="linear"), [0.24, 0.25]),
    timed_launch(Cell(workers=1, threads=8, batch=32, today=True), 0.05),
]

INFO = analyse(make_study(LAUNCHES))


def test_rows_are_found_by_their_factors() -> None:
    rows = matching(INFO.rows, workers=2)
    assert [row.cell.batch for row in rows] == [32, 32, 64]
    row = only(INFO.rows, workers=2, batch=32, recipe="linear")
    assert row is not None
    assert row.cell == cell(2, recipe="linear")
    assert only(INFO.rows, workers=2, recipe="warmup") is None
    assert [row.cell.threads for row in matching(INFO.rows, today=True)] == [8]
    assert len(matching(LAUNCHES, recipe="fixed")) == 4


def test_what_a_study_varied() -> None:
    assert worker_counts(INFO) == (1, 2)
    assert batches(INFO) == (32, 64)


def test_seconds_have_the_bounds_of_the_throughput_the_other_way_round() -> None:
    found = seconds_for(1000, Estimate(value=100.0, low=50.0, high=200.0))
    assert found == Estimate(value=10.0, low=5.0, high=20.0)
    assert seconds_for(1000, Estimate(value=100.0, low=None, high=None)) == Estimate(
        value=10.0, low=None, high=None
    )
    assert seconds_for(1000, None) is None


def test_a_mean_over_seeds_leaves_out_what_diverged() -> None:
    one = cell(1)
    launches = [
        trained_launch(one, 0, [0.2, 0.6]),
        trained_launch(one, 1, [0.2, 0.8]),
        trained_launch(one, 2, [0.2, math.nan]),
    ]
    found = final_mean(launches, "val_accuracy")
    assert found is not None
    assert found.value == pytest.approx(0.7)
    assert final_mean(launches, "other") is None


def test_steps_of_runs_to_their_end() -> None:
    ranks = [make_rank(number, make_steps(0.1, 12)) for number in range(2)]
    launches = [make_launch(cell(2), ranks, outcome="ok"), make_launch(cell(2), outcome="failed")]
    assert steps_made(launches) == 12
    assert steps_made([]) is None


def test_what_a_command_said() -> None:
    launch = make_launch(cell(1), argv=("python", "x.py", "--norm", "sync", "--last"))
    assert argument(launch, "--norm") == "sync"
    assert argument(launch, "--last") is None


def test_words() -> None:
    sure = Estimate(value=1.234, low=1.2, high=1.3)
    once = Estimate(value=0.0123, low=None, high=None)
    assert interval_words(sure, unit="s") == "1.23 (1.20 to 1.30) s"
    assert interval_words(once, factor=1000, unit="ms") == "12.3 ms (no interval)"
    assert points(Estimate(value=-0.012, low=-0.02, high=0.001)) == (
        "-1.20 points (-2.00 to +0.10)"
    )
    assert points(once) == "+1.23 points (one seed: no interval)"
    assert counts_in_words([1, 2, 4]) == "1, 2 and 4 workers"
    assert counts_in_words([1]) == "1 worker"
    assert without_intervals([None, once])
    assert not without_intervals([sure, once])
    assert not without_intervals([None])


def test_more_workers_than_cores_are_said_to_count_for_a_metric_only() -> None:
    assert void_times((1, 2), 2) == []
    (said,) = void_times((8, 1, 4), 2, metric="loss")
    assert said == "4 and 8 workers share 2 cores: their times are void, their loss counts."


@pytest.mark.parametrize(
    ("kind", "first", "second", "claimed", "agrees"),
    [
        ("ratio", 136.51, 19.4, "7.04", True),
        ("ratio", 136.51, 19.4, "7.0", True),
        ("ratio", 136.51, 19.4, "7", True),
        ("ratio", 136.51, 19.4, "7.05", False),
        ("less", 11, 5, "0.55", True),
        ("less", 11, 5, "0.75", False),
    ],
)
def test_claims(kind: str, first: float, second: float, claimed: str, agrees: bool) -> None:
    found = check_claim("a figure", kind, first, second, claimed)
    assert found.agrees is agrees
    assert found.sentence.endswith("as published." if agrees else f"not {claimed}.")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="ratio or less"):
        check_claim("a figure", "product", 1.0, 2.0, "2")

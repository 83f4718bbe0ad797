"""One number per launch."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.model.pace import (
    dataset_size,
    pace,
    positive,
    slowest_durations,
    stated,
    warmup_steps,
)
from farandole.study.records import Cell
from tests.model.build import make_launch, make_rank, make_steps, table_launch, timed_launch


def test_a_step_takes_as_long_as_its_slowest_rank() -> None:
    first = make_steps([1.0, 1.0, 3.0, 1.0])
    second = make_steps([1.0, 2.0, 1.0, 1.0])
    launch = make_launch(Cell(workers=2), [make_rank(0, first), make_rank(1, second)])
    assert slowest_durations(launch)[1:].tolist() == pytest.approx([2.0, 3.0, 1.0])


def test_ranks_with_different_numbers_of_steps_use_what_all_have() -> None:
    ranks = [make_rank(0, make_steps(1.0, 30)), make_rank(1, make_steps(1.0, 25))]
    found = pace(make_launch(Cell(workers=2, batch=10), ranks))
    assert found.steps == 24
    assert found.step_s == pytest.approx(1.0)


def test_throughput_is_all_ranks_samples_per_step_time() -> None:
    found = pace(timed_launch(Cell(workers=4, batch=32), 0.5))
    assert found.rates["samples/s"] == pytest.approx(4 * 32 / 0.5)
    assert found.rates["batches/s"] == pytest.approx(4 / 0.5)


def test_seen_samples_count_and_not_planned_ones() -> None:
    # The script accumulates over two batches: 64 samples per optimizer step.
    ranks = [make_rank(0, make_steps(0.5, samples=64.0))]
    found = pace(make_launch(Cell(workers=1, batch=32), ranks))
    assert found.rates["samples/s"] == pytest.approx(128.0)


def test_without_samples_batches_are_counted() -> None:
    found = pace(make_launch(Cell(workers=2), [make_rank(n, make_steps(0.5)) for n in (0, 1)]))
    assert dict(found.rates) == {"batches/s": pytest.approx(4.0)}


def test_the_batch_that_was_seen_stands_in_for_one_that_was_not_planned() -> None:
    ranks = [make_rank(0, make_steps(0.5), batch_seen=16)]
    found = pace(make_launch(Cell(workers=1), ranks))
    assert found.batch == 16
    assert found.rates["samples/s"] == pytest.approx(32.0)


def test_a_slow_step_at_an_epochs_begin_does_not_move_the_median() -> None:
    durations = [1.0] * 40
    durations[20] = 60.0
    launch = make_launch(Cell(workers=1, batch=1), [make_rank(0, make_steps(durations))])
    assert pace(launch).step_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("figures", "rates"),
    [
        ({"throughput": 99.0}, {"samples/s": 99.0}),
        ({"step_s": 0.25}, {"samples/s": 256.0, "batches/s": 8.0}),
        ({"epoch_s": 20.0, "job_s": 400.0}, {"epochs/s": 0.05, "jobs/s": 0.0025}),
        ({"epoch_s": float("nan")}, {}),
        ({"epoch_s": 0.0}, {}),
        ({}, {}),
    ],
)
def test_figures_without_steps(figures: dict[str, float], rates: dict[str, float]) -> None:
    found = pace(table_launch(Cell(workers=2, batch=32), **figures))
    assert dict(found.rates) == pytest.approx(rates)
    assert found.steps == 0


def test_a_rank_without_steps_leaves_nothing_to_measure() -> None:
    ranks = [make_rank(0, make_steps(1.0, 30)), make_rank(1, make_steps(1.0, 0))]
    assert pace(make_launch(Cell(workers=2), ranks)).step_s is None


def test_typical_steps_are_the_middle_half() -> None:
    durations = [1.0, *np.linspace(1.0, 1.04, 41).tolist()]
    launch = make_launch(Cell(workers=1), [make_rank(0, make_steps(durations))])
    typical = pace(launch).typical
    assert len(typical) == 21
    assert typical.min() == 11
    assert typical.max() == 31


def test_of_few_steps_some_are_typical() -> None:
    for count in (1, 2, 3):
        durations = [5.0, *np.linspace(1.0, 1.2, count).tolist()]
        launch = make_launch(Cell(workers=1), [make_rank(0, make_steps(durations))])
        assert len(pace(launch).typical) >= 1


def test_stated_figures_are_found_among_an_imported_tables_metrics() -> None:
    cell = Cell(workers=1)
    assert stated(table_launch(cell, {"parameters": 5.0}), "parameters") == 5.0
    assert stated(table_launch(cell, parameters=6.0), "parameters") == 6.0
    assert stated(timed_launch(cell, 1.0), "parameters") is None
    assert dataset_size(table_launch(cell, {"dataset_size": 50000.0}), {}) == 50000
    assert dataset_size(table_launch(cell), {"dataset_size": 7}) == 7
    rank = make_rank(0, make_steps(1.0), dataset_size=9)
    assert dataset_size(make_launch(cell, [rank]), {"dataset_size": 7}) == 9


@pytest.mark.parametrize("value", [None, "3", 0, -1.0, float("nan"), float("inf"), True])
def test_what_is_no_positive_number(value: object) -> None:
    assert positive(value) is None


NAN = float("nan")


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([], 0),
        ([NAN], 1),
        ([NAN, 1.0, 1.0], 1),
        ([NAN, *[1.0] * 30], 1),
        # Three slow steps: the median of the window settles with the second step of the rest.
        ([NAN, 9.0, 8.0, 7.0, *[1.0] * 30], 3),
        # One hiccup at the begin is not worth a warm-up; the launch's median does not see it.
        ([NAN, 9.0, *[1.0] * 30], 1),
        # A hiccup later does not prolong it.
        ([NAN, 1.0, 1.0, 9.0, *[1.0] * 30], 1),
        # Slower by less than 5 % is not warm-up.
        ([NAN, *[1.04] * 5, *[1.0] * 30], 1),
        # Never more than half.
        ([NAN, *[2.0] * 14, *[1.0] * 15], 14),
        ([NAN, *[2.0] * 10, *[1.0] * 5], 8),
    ],
)
def test_warmup(durations: list[float], expected: int) -> None:
    assert warmup_steps(np.asarray(durations, dtype=np.float64)) == expected


def test_a_slow_decay_ends_within_the_noise() -> None:
    rng = np.random.default_rng(1)
    settled = 1.0 + rng.normal(0.0, 0.02, 200)
    settled[:20] += np.linspace(2.0, 0.0, 20)
    found = warmup_steps(settled)
    assert 12 <= found <= 20

"""Metrics by workers, over seeds."""

from __future__ import annotations

import math

import pytest

from farandole.errors import UsageError
from farandole.model.accuracy import (
    MetricRow,
    choose_metric,
    collect_metrics,
    compare_finals,
    epochs_in,
    margin_of,
    metric_curves,
    metric_rows,
    with_times,
)
from farandole.model.analyse import analyse
from farandole.model.jobs import JobTime
from farandole.model.measured import measure
from farandole.model.statistics import Estimate
from farandole.study.records import Cell, Launch, Metric
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    timed_launch,
    trained_launch,
)

ONE, TWO = Cell(workers=1, batch=8), Cell(workers=2, batch=8)


def rows_of(launches: list[Launch], target: tuple[str, float] | None = None) -> list[MetricRow]:
    cells, _ = measure(make_study(launches))
    metrics = collect_metrics(cells)
    return [row for cell in cells for row in metric_rows(cell, cells, metrics, target)]


def runs(cell: Cell, finals: list[float], rise: tuple[float, ...] = (0.5, 0.8)) -> list[Launch]:
    return [trained_launch(cell, seed, [*rise, *[final] * 6]) for seed, final in enumerate(finals)]


def test_the_end_over_seeds_and_its_difference() -> None:
    one, two = rows_of(runs(ONE, [0.980, 0.981, 0.979]) + runs(TWO, [0.950, 0.951, 0.949]))
    assert one.final is not None
    assert one.final.value == pytest.approx(0.98)
    assert (one.difference, one.verdict) == (None, None)
    assert two.difference is not None
    assert two.difference.value == pytest.approx(-0.03)
    assert (two.seeds, two.verdict, two.margin) == (3, "worse", 0.01)


@pytest.mark.parametrize(
    ("values", "reference", "diverged", "higher", "expected"),
    [
        ([0.980, 0.981, 0.979], [0.980, 0.979, 0.981], 0, True, "same"),
        ([0.990, 0.991, 0.989], [0.960, 0.959, 0.961], 0, True, "better"),
        ([0.960, 0.961, 0.959], [0.990, 0.989, 0.991], 0, True, "worse"),
        ([0.50, 0.51, 0.49], [0.40, 0.41, 0.39], 0, False, "worse"),
        ([0.40, 0.41, 0.39], [0.50, 0.51, 0.49], 0, False, "better"),
        ([0.98, 0.93, 0.99], [0.97, 0.98, 0.92], 0, True, "inconclusive"),
        # Two seeds are too few for "same".
        ([0.980, 0.980], [0.980, 0.980], 0, True, "inconclusive"),
        ([0.98], [0.90], 0, True, "inconclusive"),
        ([0.98, 0.98], [0.98, 0.98, 0.98], 1, True, "worse"),
        ([], [], 3, True, "inconclusive"),
    ],
)
def test_judging_ends(
    values: list[float], reference: list[float], diverged: int, higher: bool, expected: str
) -> None:
    found = compare_finals(values, reference, diverged, higher=higher, margin=0.01)
    assert found == expected


def test_runs_that_were_ended_early_say_nothing_of_accuracy() -> None:
    metric = Metric(name="val_accuracy", value=0.5, epoch=1)
    launches = [
        timed_launch(ONE, 0.1, metrics=(metric,)),
        make_launch(ONE, purpose="accuracy", outcome="failed", metrics=(metric,)),
    ]
    assert rows_of(launches) == []


def test_a_run_that_diverged_is_counted_and_not_averaged() -> None:
    launches = runs(ONE, [0.9, 0.9, 0.9])
    launches += [trained_launch(TWO, seed, [0.5, math.nan]) for seed in range(3)]
    _, two = rows_of(launches)
    assert (two.final, two.diverged, two.verdict) == (None, 3, "worse")


def test_seeds_without_effect_are_one_run() -> None:
    launches = [trained_launch(ONE, seed, [0.5, 0.9]) for seed in range(3)]
    launches += [trained_launch(TWO, seed, [0.5, 0.8]) for seed in range(3)]
    one, two = rows_of(launches)
    assert one.final is not None
    assert (one.final.value, one.final.low, one.seeds, one.seeds_alike) == (0.9, None, 3, True)
    assert two.verdict == "inconclusive"
    # Ends that agree by chance are not the same run.
    varied = [trained_launch(ONE, seed, [0.5 + 0.01 * seed, 0.9]) for seed in range(3)]
    assert not rows_of(varied)[0].seeds_alike


def test_metrics_on_some_cells_only() -> None:
    (row,) = rows_of([*runs(TWO, [0.9, 0.9, 0.9]), timed_launch(ONE, 0.1)])
    assert row.cell == TWO
    assert row.verdict is None


def test_the_baseline_has_the_same_parameters_and_preferably_the_same_batch() -> None:
    launches = [
        *runs(Cell(workers=1, batch=16), [0.5]),
        *runs(Cell(workers=1, batch=8), [0.6]),
        *runs(Cell(workers=1, batch=8, params=(("model", "other"),)), [0.1]),
        *runs(TWO, [0.65]),
    ]
    row = next(row for row in rows_of(launches) if row.cell == TWO)
    assert row.difference is not None
    assert row.difference.value == pytest.approx(0.05)


def test_stability_and_target_over_seeds() -> None:
    launches = [
        trained_launch(ONE, 0, [0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]),
        trained_launch(ONE, 1, [0.5, 0.7, 0.9, 0.9, 0.9, 0.9, 0.9]),
        trained_launch(ONE, 2, [0.5, 0.6, 0.7, 0.9, 0.9, 0.9, 0.9]),
    ]
    (row,) = rows_of(launches, ("val_accuracy", 0.85))
    assert (row.stable_epoch, row.stable_s, row.censored) == (3.0, 30.0, 0)
    assert (row.target, row.target_epoch, row.target_s, row.target_reached) == (0.85, 3.0, 30.0, 3)


def test_a_target_that_is_not_reached() -> None:
    (row,) = rows_of(runs(ONE, [0.9, 0.9, 0.9]), ("val_accuracy", 0.95))
    assert (row.target_epoch, row.target_s, row.target_reached) == (None, None, 0)


def test_a_table_may_state_the_epoch_and_times_follow_from_epochs() -> None:
    (row,) = rows_of([table_launch(ONE, {"val_accuracy": 0.7, "stable_epoch": 15.0})])
    assert (row.stable_epoch, row.stable_s) == (15.0, None)
    job = JobTime(
        cell=ONE,
        label="",
        job_s=None,
        epochs=None,
        epoch_s=Estimate(value=209.0, low=None, high=None),
        epoch_measured=True,
        steps_per_epoch=None,
        startup_s=None,
        between_s=None,
        fixed_s=None,
        fixed_share=None,
    )
    assert with_times(row, job).stable_s == pytest.approx(3135.0)
    assert with_times(row, None) is row


def test_curves_have_intervals_over_seeds_and_leave_out_what_is_no_number() -> None:
    cells, _ = measure(
        make_study([trained_launch(ONE, 0, [0.4, 0.8]), trained_launch(ONE, 1, [0.6, math.nan])])
    )
    (curve,) = metric_curves(cells[0], collect_metrics(cells))
    first, second = curve.points
    assert first.value.value == pytest.approx(0.5)
    assert first.value.low is not None
    assert (first.seeds, second.seeds) == (2, 1)
    assert second.value.low is None
    assert (first.time_s, second.time_s) == (10.0, 20.0)


def test_a_value_per_step_is_thinned() -> None:
    metrics = tuple(Metric(name="loss", value=1.0, step=step) for step in range(10_000))
    cells, _ = measure(
        make_study([make_launch(ONE, purpose="accuracy", outcome="ok", metrics=metrics)])
    )
    (curve,) = metric_curves(cells[0], collect_metrics(cells))
    assert len(curve.points) <= 300


@pytest.mark.parametrize(
    ("name", "values", "margin"),
    [
        ("accuracy", [0.98, 0.97], 0.01),
        ("accuracy", [46.164, 49.78], 1.0),
        ("loss", [2.0, 2.0, 4.0], 0.06),
        ("loss", [math.nan], 0.03),
    ],
)
def test_margins(name: str, values: list[float], margin: float) -> None:
    assert margin_of(name, values) == pytest.approx(margin)


def test_a_target_of_an_unknown_metric_is_refused_with_the_known_ones() -> None:
    cells, _ = measure(make_study(runs(ONE, [0.9])))
    with pytest.raises(UsageError, match="recorded val_accuracy"):
        choose_metric(collect_metrics(cells), ("acc", 0.9))
    assert choose_metric({}, ("acc", 0.9)) == "acc"


ALONE, BOTH = (
    Cell(workers=1, batch=8, threads=1),
    Cell(workers=2, batch=8, threads=1),
)


@pytest.mark.parametrize(
    ("argv", "epochs"),
    [
        (["python", "train.py", "--epochs", "10"], 10),
        (["python", "train.py", "--num-epochs=4"], 4),
        (["python", "train.py", "--max_epochs", "7", "--lr", "1"], 7),
        (["python", "train.py", "trainer.max_epochs=3"], 3),
        (["python", "train.py", "--warmup-epochs", "5", "--epochs", "90"], 90),
        (["python", "train.py", "--epochs"], None),
        (["python", "train.py", "epochs", "3"], None),
        (["python", "epochs.py", "--epochs", "all"], None),
        ([], None),
    ],
)
def test_epochs_are_read_from_a_command(argv: list[str], epochs: int | None) -> None:
    assert epochs_in(argv) == epochs


def one_epoch(cell: Cell, *argv: str) -> Launch:
    """A launch that was ended after one epoch: 2 s of start-up, 38 s of it, 2 s of validation."""
    ranks = [
        make_rank(n, make_steps(1.0, 38, begin_s=100.0, samples=8.0), epochs=((100.0, 138.0),))
        for n in range(cell.workers)
    ]
    return make_launch(cell, ranks, purpose="epoch", wall_s=42.0, argv=argv)


def test_of_an_epoch_and_the_commands_number_of_them() -> None:
    launches = [one_epoch(cell, "python", "train.py", "--epochs", "10") for cell in (ALONE, BOTH)]
    # 2 cells x 3 seeds x (2 s + 10 x 40 s)
    said = analyse(make_study(launches)).answer.headline
    assert "accuracy not measured (--measure both, about 40 min)" in said


def test_of_an_epoch_where_the_command_does_not_say_how_many() -> None:
    launches = [one_epoch(cell, "python", "train.py") for cell in (ALONE, BOTH)]
    # 2 cells x 3 seeds x 40 s
    said = analyse(make_study(launches)).answer.headline
    assert "accuracy not measured (--measure both, about 4 min per epoch)" in said
    said = analyse(make_study(launches, spec={"seeds": 1})).answer.headline
    assert "accuracy not measured (--measure both, about 80 s per epoch)" in said

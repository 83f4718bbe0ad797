"""Metrics as series and by workers, over seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.model.accuracy import (
    MetricRow,
    choose_metric,
    collect_metrics,
    compare_finals,
    margin_of,
    metric_curves,
    metric_rows,
)
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.metrics import (
    Reached,
    Series,
    higher_is_better,
    kaplan_meier_median,
    main_metric,
    paired_gap,
    reach,
    series_of,
    smallest_difference,
)
from farandole.study.records import Cell, Launch, Metric
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
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
    assert one.final.value == pytest.approx(0.98)
    assert (one.difference, one.verdict) == (None, None)
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


def test_a_run_that_diverged_is_counted_and_not_averaged() -> None:
    launches = runs(ONE, [0.9, 0.9, 0.9])
    launches += [trained_launch(TWO, seed, [0.5, math.nan]) for seed in range(3)]
    _, two = rows_of(launches)
    assert (two.final, two.diverged, two.verdict) == (None, 3, "worse")


def test_seeds_without_effect_are_one_run() -> None:
    launches = [trained_launch(ONE, seed, [0.5, 0.9]) for seed in range(3)]
    launches += [trained_launch(TWO, seed, [0.5, 0.8]) for seed in range(3)]
    one, two = rows_of(launches)
    assert (one.final.value, one.final.low, one.seeds, one.seeds_alike) == (0.9, None, 3, True)
    assert two.verdict == "inconclusive"
    # Ends that agree by chance are not the same run.
    varied = [trained_launch(ONE, seed, [0.5 + 0.01 * seed, 0.9]) for seed in range(3)]
    assert not rows_of(varied)[0].seeds_alike


def test_the_baseline_has_the_same_parameters_and_preferably_the_same_batch() -> None:
    launches = [
        *runs(Cell(workers=1, batch=16), [0.5]),
        *runs(Cell(workers=1, batch=8), [0.6]),
        *runs(Cell(workers=1, batch=8, params=(("model", "other"),)), [0.1]),
        *runs(TWO, [0.65]),
    ]
    row = next(row for row in rows_of(launches) if row.cell == TWO)
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


def test_a_table_may_state_the_epoch_and_times_follow_from_epochs() -> None:
    launch = table_launch(ONE, {"val_accuracy": 0.7, "stable_epoch": 15.0}, epoch_s=209.0)
    (row,) = analyse(make_study([launch])).each("metrics")
    assert (row.stable_epoch, row.stable_s) == (15.0, pytest.approx(3135.0))
    (row,) = rows_of([launch])
    assert row.stable_s is None


def test_curves_have_intervals_over_seeds_and_leave_out_what_is_no_number() -> None:
    cells, _ = measure(
        make_study([trained_launch(ONE, 0, [0.4, 0.8]), trained_launch(ONE, 1, [0.6, math.nan])])
    )
    (curve,) = metric_curves(cells[0], collect_metrics(cells))
    first, second = curve.points
    assert first.value.value == pytest.approx(0.5)
    assert (first.seeds, second.seeds) == (2, 1)
    assert second.value.low is None
    assert (first.time_s, second.time_s) == (10.0, 20.0)


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


# One launch


def test_ranks_and_steps_of_an_epoch_are_averaged() -> None:
    ranks = [
        make_rank(
            number,
            make_steps(0.1, 4),
            metrics=tuple(
                Metric(
                    name="loss", value=value + number, epoch=epoch, time_s=epoch * 10.0, rank=number
                )
                for epoch, value in ((1, 4.0), (1, 2.0), (2, 1.0))
            ),
        )
        for number in (0, 1)
    ]
    series = series_of(make_launch(Cell(workers=2), ranks))["loss"]
    assert series.epochs == (1.0, 2.0)
    assert series.values == pytest.approx((3.5, 1.5))
    assert series.times_s == (10.0, 20.0)
    assert series.final == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("made", "told", "epochs"),
    [
        (3, (0, 1, 2), (1.0, 2.0, 3.0)),  # by range(3), as Keras does
        (3, (1, 2, 3), (1.0, 2.0, 3.0)),
        (2, (0, 1, 2), (0.0, 1.0, 2.0)),  # a look before the first of two epochs
        (2, (0, 0.5, 1), (0.0, 0.5, 1.0)),  # parts of epochs
        (0, (0, 1), (1.0, 2.0)),  # nobody counted
    ],
)
def test_epochs_are_those_that_are_done(
    made: int, told: tuple[float, ...], epochs: tuple[float, ...]
) -> None:
    metrics = tuple(Metric(name="acc", value=0.5, epoch=epoch, rank=0) for epoch in told)
    rank = make_rank(0, make_steps(0.1, 4), metrics=metrics, epochs=((0.0, 1.0),) * made)
    assert series_of(make_launch(Cell(workers=1), [rank]))["acc"].epochs == epochs


def test_stated_figures_are_no_metrics_and_metrics_among_figures_are() -> None:
    launch = table_launch(
        Cell(workers=1), {"parameters": 9.0, "loss": 0.5}, val_accuracy=0.9, job_s=3.0
    )
    assert set(series_of(launch)) == {"loss", "val_accuracy"}


@pytest.mark.parametrize(
    ("name", "higher"),
    [
        ("accuracy", True),
        ("val_acc", True),
        ("top1", True),
        ("val_loss", False),
        ("mse", False),
        ("train/error_rate", False),
        ("perplexity", False),
        ("auc", True),
        ("lr", None),
        ("grad_norm", None),
    ],
)
def test_directions(name: str, higher: bool | None) -> None:
    assert higher_is_better(name) is higher


@pytest.mark.parametrize(
    ("names", "main"),
    [
        (["loss", "val_loss", "accuracy", "val_accuracy"], "val_accuracy"),
        (["loss", "accuracy"], "accuracy"),
        (["loss", "val_loss"], "val_loss"),
        (["Val-Acc", "loss"], "Val-Acc"),
        (["test_f1", "loss_total"], "test_f1"),
        (["lr"], None),
        ([], None),
    ],
)
def test_the_metric_that_stands_for_accuracy(names: list[str], main: str | None) -> None:
    assert main_metric(names) == main


def series(*values: float) -> Series:
    epochs = tuple(float(epoch) for epoch in range(1, len(values) + 1))
    return Series(
        epochs=epochs, values=values, times_s=tuple(10 * epoch for epoch in epochs), by_step=False
    )


@pytest.mark.parametrize(
    ("values", "target", "higher", "epoch"),
    [
        ((0.1, 0.5, 0.9, 0.9, 0.9, 0.9), 0.9, True, 3),
        # Touched once and lost again: not reached until it holds.
        ((0.1, 0.9, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9), 0.9, True, 5),
        ((0.1, 0.5, 0.8, 0.8, 0.8), 0.9, True, None),
        # Reached in the last two evaluations only: whether it holds is not known.
        ((0.1, 0.1, 0.1, 0.1, 0.9, 0.9), 0.9, True, None),
        ((3.0, 1.0, 0.5, 0.5, 0.5), 0.5, False, 3),
        ((3.0, math.nan, 0.5, 0.5, 0.5), 0.5, False, 3),
        ((math.nan,) * 5, 0.5, False, None),
    ],
)
def test_reaching(
    values: tuple[float, ...], target: float, higher: bool, epoch: float | None
) -> None:
    found = reach(series(*values), target, higher=higher)
    assert found.epoch == epoch
    assert found.time_s == (None if epoch is None else 10 * epoch)
    assert found.censored_at == len(values)


def _reached(*epochs: float | None, last: float = 30.0) -> list[Reached]:
    return [Reached(epoch=epoch, time_s=None, censored_at=last) for epoch in epochs]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ((4.0, 6.0, 5.0), 5.0),
        ((4.0, 6.0), 4.0),
        # Two of three got there: the second of them is the median.
        ((4.0, None, 6.0), 6.0),
        ((4.0, None, None), None),
        ((None,), None),
        ((), None),
    ],
)
def test_the_median_with_runs_that_never_got_there(
    epochs: tuple[float | None, ...], expected: float | None
) -> None:
    assert kaplan_meier_median(_reached(*epochs)) == expected


def test_kaplan_meier_with_censoring_between_events() -> None:
    # At risk 5: event at 2 (4/5), two censored at 3, event at 5 with 2 at risk (2/5).
    events = [
        Reached(epoch=2.0, time_s=None, censored_at=9.0),
        Reached(epoch=None, time_s=None, censored_at=3.0),
        Reached(epoch=None, time_s=None, censored_at=3.0),
        Reached(epoch=5.0, time_s=None, censored_at=9.0),
        Reached(epoch=8.0, time_s=None, censored_at=9.0),
    ]
    assert kaplan_meier_median(events) == 5.0


def test_a_gap_agrees_with_scipys_paired_test() -> None:
    from scipy.stats import ttest_rel

    values, reference = [0.71, 0.68, 0.74, 0.70], [0.73, 0.66, 0.75, 0.74]
    expected = ttest_rel(values, reference).confidence_interval(0.90)
    found = paired_gap(dict(enumerate(values)), dict(enumerate(reference)))
    assert (found.difference.low, found.difference.high) == pytest.approx(
        (expected.low, expected.high)
    )


def test_only_seeds_of_both_sides_count_and_one_has_no_interval() -> None:
    found = paired_gap({0: 0.5, 7: 0.9}, {0: 0.6, 1: 0.1})
    assert found.difference.value == pytest.approx(-0.1)
    assert (found.difference.low, found.difference.high) == (None, None)
    assert paired_gap({0: 0.5}, {1: 0.5}) is None


def test_what_diverged_is_counted_and_left_out() -> None:
    found = paired_gap({0: math.nan, 1: 0.5, 2: 0.5}, {0: 0.6, 1: 0.6, 2: 0.6})
    assert (found.seeds, found.diverged) == (2, 1)
    assert found.difference.value == pytest.approx(-0.1)
    assert paired_gap({0: math.nan}, {0: 0.6}) is None


def test_equal_trainings_differ_by_more_in_at_most_a_tenth_of_cases() -> None:
    rng = np.random.default_rng(1)
    chances = np.full(400, 0.6)
    limit = smallest_difference(400, 0.6, 2)
    # 4000 pairs of means over two seeds, each test sample drawn anew.
    means = rng.binomial(1, chances, size=(4000, 2, 2, 400)).mean(axis=(2, 3))
    beyond = float(np.mean(np.abs(means[:, 0] - means[:, 1]) > limit))
    # Of 10 %, with a standard error of 0.5 %.
    assert beyond == pytest.approx(0.10, abs=0.02)

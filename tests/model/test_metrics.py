"""Metrics as series: their ends, when they are stable, gaps by seed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farandole.model.metrics import (
    Reached,
    Series,
    evaluation_spread,
    finals_by_seed,
    higher_is_better,
    kaplan_meier_median,
    main_metric,
    paired_gap,
    plateau,
    reach,
    series_of,
    smallest_difference,
    training_partner,
)
from farandole.study.records import Cell, Metric
from tests.model.build import make_launch, make_rank, make_steps, table_launch, trained_launch


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


def test_values_per_step_end_in_a_median() -> None:
    metrics = tuple(Metric(name="loss", value=float(v), step=v) for v in range(1, 31))
    series = series_of(make_launch(Cell(workers=1), metrics=metrics))["loss"]
    assert series.by_step
    assert series.final == pytest.approx(25.5)


def test_values_with_neither_are_counted_per_rank() -> None:
    ranks = [
        make_rank(
            n,
            make_steps(0.1, 4),
            metrics=tuple(Metric(name="acc", value=v, rank=n) for v in (0.2, 0.4)),
        )
        for n in (0, 1)
    ]
    series = series_of(make_launch(Cell(workers=2), ranks))["acc"]
    assert series.epochs == (1.0, 2.0)
    assert series.values == pytest.approx((0.2, 0.4))


def test_a_value_that_is_no_number_stays_one() -> None:
    metrics = (
        Metric(name="loss", value=1.0, epoch=1),
        Metric(name="loss", value=math.nan, epoch=2),
    )
    assert math.isnan(series_of(make_launch(Cell(workers=1), metrics=metrics))["loss"].final)


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


def test_partners() -> None:
    assert training_partner("val_loss", ["loss", "val_loss"]) == "loss"
    assert training_partner("val_accuracy", ["train_accuracy", "accuracy"]) == "train_accuracy"
    assert training_partner("loss", ["loss", "val_loss"]) is None
    assert training_partner("val_loss", ["accuracy"]) is None


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


def test_a_value_within_the_noise_does_not_break_the_window() -> None:
    noisy = (0.5, 0.90, 0.89, 0.91, 0.90, 0.89, 0.91, 0.90, 0.91, 0.89)
    assert reach(series(*noisy), 0.90, higher=True).epoch == 2


def test_the_spread_of_evaluations_is_apart_from_the_trend() -> None:
    assert evaluation_spread([0.1 * step for step in range(20)]) == pytest.approx(0.0, abs=1e-12)
    # Differences of +-0.02 alternate: their standard deviation is about 0.02.
    zigzag = [0.9 + 0.01 * (-1) ** step for step in range(40)]
    assert evaluation_spread(zigzag) == pytest.approx(0.02 / math.sqrt(2), rel=0.1)
    assert evaluation_spread([0.1, 0.2]) == 0.0


def test_a_plateau_is_the_end_less_the_noise() -> None:
    assert plateau([0.1, 0.5, 0.9, 0.9, 0.9, 0.9], higher=True) == pytest.approx(0.9)
    assert plateau([3.0, 1.0, 0.5, 0.5, 0.5, 0.5], higher=False) == pytest.approx(0.5)


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


ONE = Cell(workers=1, batch=32)


def test_a_gap_is_students_t_over_the_differences() -> None:
    found = paired_gap({0: 0.80, 1: 0.70, 2: 0.61}, {0: 0.81, 1: 0.72, 2: 0.64})
    assert found is not None
    # Differences -0.01, -0.02, -0.03: standard deviation 0.01; t(0.95, 2) = 2.919986.
    half_width = 2.919986 * 0.01 / math.sqrt(3)
    assert found.difference.value == pytest.approx(-0.02)
    assert found.difference.low == pytest.approx(-0.02 - half_width, rel=1e-6)
    assert found.difference.high == pytest.approx(-0.02 + half_width, rel=1e-6)
    assert (found.seeds, found.diverged) == (3, 0)


def test_a_gap_agrees_with_scipys_paired_test() -> None:
    from scipy.stats import ttest_rel

    values, reference = [0.71, 0.68, 0.74, 0.70], [0.73, 0.66, 0.75, 0.74]
    expected = ttest_rel(values, reference).confidence_interval(0.90)
    found = paired_gap(dict(enumerate(values)), dict(enumerate(reference)))
    assert found is not None
    assert (found.difference.low, found.difference.high) == pytest.approx(
        (expected.low, expected.high)
    )


def test_only_seeds_of_both_sides_count_and_one_has_no_interval() -> None:
    found = paired_gap({0: 0.5, 7: 0.9}, {0: 0.6, 1: 0.1})
    assert found is not None
    assert found.difference.value == pytest.approx(-0.1)
    assert (found.difference.low, found.difference.high) == (None, None)
    assert paired_gap({0: 0.5}, {1: 0.5}) is None


def test_what_diverged_is_counted_and_left_out() -> None:
    found = paired_gap({0: math.nan, 1: 0.5, 2: 0.5}, {0: 0.6, 1: 0.6, 2: 0.6})
    assert found is not None
    assert (found.seeds, found.diverged) == (2, 1)
    assert found.difference.value == pytest.approx(-0.1)
    assert paired_gap({0: math.nan}, {0: 0.6}) is None


def test_finals_are_the_last_values_of_whole_runs_by_seed() -> None:
    launches = [
        trained_launch(ONE, 0, [0.1, 0.5]),
        trained_launch(ONE, 3, [0.2, 0.6]),
        trained_launch(ONE, 3, [0.2, 0.7]),
        make_launch(ONE),
        make_launch(ONE, purpose="accuracy", outcome="failed", seed=4),
    ]
    assert finals_by_seed(launches, "val_accuracy") == {0: 0.5, 3: 0.7}
    assert finals_by_seed(launches, "val_loss") == {}


def test_the_smallest_difference_by_hand() -> None:
    # 1.644854 x sqrt(2 x 0.25 / 10,000)
    assert smallest_difference(10_000, 0.5, 1) == pytest.approx(1.644854 * math.sqrt(5e-5))
    assert smallest_difference(2000, 0.7, 3) == pytest.approx(
        smallest_difference(2000, 0.7, 1) / math.sqrt(3)
    )
    # All right: no spread is left, but no less than one answer can be seen.
    assert smallest_difference(500, 1.0, 1) == 1 / 500


def test_equal_trainings_differ_by_more_in_at_most_a_tenth_of_cases() -> None:
    rng = np.random.default_rng(1)
    chances = np.full(400, 0.6)
    limit = smallest_difference(400, 0.6, 2)
    # 4000 pairs of means over two seeds, each test sample drawn anew.
    means = rng.binomial(1, chances, size=(4000, 2, 2, 400)).mean(axis=(2, 3))
    beyond = float(np.mean(np.abs(means[:, 0] - means[:, 1]) > limit))
    # Of 10 %, with a standard error of 0.5 %.
    assert beyond == pytest.approx(0.10, abs=0.02)

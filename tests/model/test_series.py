"""Metrics as series."""

from __future__ import annotations

import math

import pytest

from farandole.model.series import (
    higher_is_better,
    main_metric,
    series_of,
    training_partner,
)
from farandole.study.records import Cell, Metric
from tests.model.build import make_launch, make_rank, make_steps, table_launch


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

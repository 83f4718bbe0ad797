"""What metrics say: where each rule fires, and where it must not."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.model.accuracy import MetricCurve, MetricPoint, MetricRow
from farandole.model.statistics import Estimate
from farandole.model.training_verdicts import (
    changed,
    diverged,
    instability,
    missing,
    overfitting,
    seeds_without_effect,
    soonest,
)
from farandole.study.records import Cell

CELL = Cell(workers=2)


def row(metric: str, final: float | None, **changes: Any) -> MetricRow:
    given: dict[str, Any] = {
        "cell": CELL,
        "label": "2 workers",
        "metric": metric,
        "higher_is_better": "loss" not in metric,
        "final": None if final is None else Estimate(value=final, low=None, high=None),
        "seeds": 3,
        "diverged": 0,
        "difference": None,
        "margin": 0.01,
        "verdict": None,
        "stable_epoch": None,
        "stable_s": None,
        "censored": 0,
        "target": None,
        "target_epoch": None,
        "target_s": None,
        "target_reached": 0,
    }
    return MetricRow(**(given | changes))


def curve(metric: str, *values: float) -> MetricCurve:
    points = tuple(
        MetricPoint(
            epoch=float(epoch),
            value=Estimate(value=value, low=None, high=None),
            time_s=None,
            seeds=1,
        )
        for epoch, value in enumerate(values, start=1)
    )
    return MetricCurve(cell=CELL, label="2 workers", metric=metric, points=points)


@pytest.mark.parametrize(
    ("validation", "training", "values", "fires"),
    [
        (("val_accuracy", 0.6888), ("accuracy", 0.8610), (), True),
        (("val_accuracy", 0.94), ("accuracy", 0.98), (), False),
        (("val_accuracy", 0.98), ("accuracy", 0.94), (), False),
        (("val_accuracy", None), ("accuracy", 0.94), (), False),
        # The loss rises by 20 % after its best.
        (("val_loss", 0.60), ("loss", 0.1), (1.0, 0.5, 0.55, 0.6), True),
        (("val_loss", 0.51), ("loss", 0.1), (1.0, 0.5, 0.5, 0.51), False),
        # It rises, but so does training's: not overfitting.
        (("val_loss", 0.60), ("loss", 0.7), (1.0, 0.5, 0.55, 0.6), False),
    ],
)
def test_overfitting(
    validation: tuple[str, float | None],
    training: tuple[str, float],
    values: tuple[float, ...],
    fires: bool,
) -> None:
    by_epoch = curve(validation[0], *values) if values else None
    found = overfitting(row(*validation), row(*training), by_epoch)
    assert (found is not None) is fires


def test_overfitting_names_the_gap_and_the_plateau() -> None:
    by_epoch = curve("val_accuracy", 0.3, 0.5, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7)
    found = overfitting(row("val_accuracy", 0.7), row("accuracy", 0.9), by_epoch)
    assert found is not None
    assert found.evidence["gap"] == pytest.approx(0.2)
    assert found.evidence["plateau (epoch)"] == 3
    stated = overfitting(row("val_accuracy", 0.7, stable_epoch=15.0), row("accuracy", 0.9))
    assert stated is not None
    assert stated.evidence["plateau (epoch)"] == 15
    loss = overfitting(row("val_loss", 0.6), row("loss", 0.1), curve("val_loss", 1.0, 0.5, 0.6))
    assert loss is not None
    assert loss.evidence["plateau (epoch)"] == 2


@pytest.mark.parametrize(
    ("values", "higher", "epoch"),
    [
        ((0.5, 0.6, 0.7, 0.8, 0.9, 0.9), True, None),
        ((0.5, 0.6, 0.9, 0.7, 0.9, 0.9), True, 4),
        ((0.5, 0.6, 0.9, 0.87, 0.9, 0.9), True, None),
        ((2.0, 1.0, 0.5, 1.5, 0.5, 0.4), False, 4),
        ((2.0, 1.0, 0.5, 0.6, 0.5, 0.4), False, None),
        # In the first fifth anything may happen.
        ((0.9, 0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9), True, None),
        ((0.9,), True, None),
    ],
)
def test_instability(values: tuple[float, ...], higher: bool, epoch: int | None) -> None:
    found = instability(curve("metric", *values), higher=higher, margin=0.01)
    assert (found.evidence["epoch"] if found else None) == epoch


def test_divergence() -> None:
    assert diverged(row("loss", 0.5)) is None
    found = diverged(row("loss", None, diverged=3))
    assert found is not None
    assert found.sentence.startswith("3 of 3 runs diverged")


DIFFERENCE = Estimate(value=-0.002, low=-0.006, high=0.002)


@pytest.mark.parametrize(
    ("verdict", "kind", "severity"),
    [
        ("same", "no_significant_difference", "good"),
        ("worse", "accuracy_worse", "warn"),
        ("better", "accuracy_better", "note"),
        ("inconclusive", "too_noisy", "note"),
        (None, None, None),
    ],
)
def test_changes(verdict: str | None, kind: str | None, severity: str | None) -> None:
    found = changed(row("val_accuracy", 0.98, verdict=verdict, difference=DIFFERENCE))
    assert (found.kind if found else None) == kind
    assert (found.severity if found else None) == severity


def test_undecided_says_what_to_run_next() -> None:
    found = changed(row("val_accuracy", 0.98, verdict="inconclusive", difference=DIFFERENCE))
    assert found is not None
    assert "--seeds 6" in found.action


def test_seeds_without_effect() -> None:
    assert seeds_without_effect(row("loss", 0.5)) is None
    found = seeds_without_effect(row("loss", 0.5, seeds_alike=True))
    assert found is not None
    assert "All 3 seeds gave the very same loss" in found.sentence
    # Runs that all ended as NaN are alike for another reason.
    assert seeds_without_effect(row("loss", None, seeds_alike=True, diverged=3)) is None


def test_the_soonest_is_named() -> None:
    slow = row("val_accuracy", 0.7, label="2 T4", stable_s=3135.0)
    fast = row("val_accuracy", 0.7, label="8 V100", stable_s=1100.0)
    found = soonest([slow, fast, row("val_accuracy", 0.7)])
    assert found is not None
    assert found.sentence == (
        "A stable value of val_accuracy comes soonest with 8 V100: after 1,100 s; with 2 T4 after "
        "3,135 s."
    )
    assert soonest([slow]) is None
    target = soonest([row("a", 1.0, target_s=5.0), row("a", 1.0, target_s=9.0), slow, fast])
    assert target is not None
    assert target.sentence.startswith("The target of a ")


def test_a_metric_of_some_cells_only() -> None:
    found = missing("val_acc", having=["1 worker"], lacking=["2 workers", "4 workers"])
    assert found is not None
    assert found.sentence == (
        "val_acc is not known of 2 workers, 4 workers: accuracy is compared where it is."
    )
    many = missing("val_acc", having=["a"], lacking=list("bcdef"))
    assert many is not None
    assert "of b, c, d and 2 more:" in many.sentence
    assert missing("val_acc", having=["a"], lacking=[]) is None
    assert missing("val_acc", having=[], lacking=["a"]) is None

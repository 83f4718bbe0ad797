"""A projection whose every figure follows from a formula, for tests of the report."""

from __future__ import annotations

from farandole.model.projection.advice import (
    FleetRow,
    NextStep,
    OfferRow,
    Projection,
    Recommendation,
)
from farandole.model.projection.epochs import Goal
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow

MEASURED = 2
"""Workers, at most."""


def figure(value: float, workers: int) -> Prediction:
    """Return a figure known to 20 %."""
    ratio = workers / MEASURED
    return Prediction(
        value=value, low=value / 1.2, high=value * 1.2, ratio=ratio, indicative=ratio > 16
    )


def outlook(workers: int, link: str | None = None, *, measured: bool = False) -> ProjectionRow:
    """Return a count: 1000 samples/s a worker, less 2 % per worker (1 % on 25 Gbit)."""
    lost = 0.02 if link == "10Gbit" else 0.01
    rate = 1000.0 * workers * (1 - lost) ** (workers - 1)
    time_s = 7200.0 * 1000 / rate
    return ProjectionRow(
        workers=workers,
        hosts=(workers + 1) // 2,
        link=link,
        batch=32,
        global_batch=32 * workers,
        measured=measured,
        step_s=figure(32 * workers / rate, workers),
        throughput=figure(rate, workers),
        speedup=figure(rate / 1000, workers),
        epoch_s=figure(time_s / 10, workers),
        epochs=figure(10.0, workers),
        time_s=figure(time_s, workers),
        cost=figure(time_s * workers * 2 / 3600, workers),
        metric=figure(0.9, workers),
        limited_by="communication",
        parts={"compute": 0.6, "communication": 0.3, "epochs": 0.08, "fixed_cost": 0.02},
    )


def projection(*, word: str = "val_accuracy", name: str = "A") -> Projection:
    """Return a projection from 1 and 2 workers to 4, 16 and 64; words are the user's."""
    links = ("10Gbit", "25Gbit")
    measured = [outlook(n, measured=True) for n in (1, 2)]
    curve = [outlook(1), outlook(2)]
    curve += [outlook(n, link) for n in (4, 8, 16, 32, 64) for link in links]
    rows = [*measured, *(one for one in curve if one.workers in (4, 16, 64))]
    return Projection(
        headline="16 workers on 25Gbit: 8.90 min (7.42 min to 10.7 min) to val_accuracy 0.9.",
        sentences=("16 workers by the knee.",),
        goal=Goal(kind="target", words=f"to {word} 0.9", metric=word, value=0.9),
        scaling="weak",
        group="",
        device="gpu",
        recipe="as your script sets it",
        metric=word,
        unit="samples/s",
        measured_workers=(1, 2),
        per_host=2,
        price="2",
        rows=tuple(rows),
        curve=tuple(curve),
        recommendations=(
            Recommendation(rule="knee", workers=16, link="25Gbit", sentence="16 by the knee."),
        ),
        offers=(
            OfferRow(name=name, text="4, nvlink", speed=1.0, outlook=outlook(4, "25Gbit")),
            OfferRow(name="B", text="16, 10Gbit", speed=1.4, outlook=outlook(16, "10Gbit")),
        ),
        offers_sentence=f"{name} is the cheapest.",
        fleet=(
            FleetRow(
                workers=2,
                jobs=4,
                link="25Gbit",
                time_s=figure(100.0, 2),
                per_day=figure(3456.0, 2),
                cost=None,
            ),
        ),
        fleet_sentence="4 jobs of 2 workers.",
        forms=(("ring", 0.7), ("tree", 0.3)),
        critical_batch=None,
        assumptions=("The link is taken at its word.",),
        next=NextStep(sentence="Twice the workers narrow it.", spec={"workers": [1, 2, 4]}),
        track_record="On public clusters such projections missed by 9 %.",
    )

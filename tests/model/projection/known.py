"""Steps and projections whose every figure follows from a formula."""

from __future__ import annotations

from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow


def ring_s(workers: int, batch: int = 10) -> float:
    """Return T = 0.01 b + 0.1 (N - 1) / N."""
    return 0.01 * batch + 0.1 * (workers - 1) / workers


def figure(value: float, *, width: float = 1.1, indicative: bool = False) -> Prediction:
    """Return a figure known to a factor."""
    return Prediction(
        value=value, low=value / width, high=value * width, ratio=1.0, indicative=indicative
    )


def projection_row(
    workers: int, time_s: float, cost: float | None = None, **changes: object
) -> ProjectionRow:
    """Return a count of workers with a time, and nothing else that matters."""
    given: dict[str, object] = {
        "workers": workers,
        "hosts": 1,
        "link": None,
        "batch": 10,
        "global_batch": 10 * workers,
        "measured": False,
        "step_s": figure(0.1),
        "throughput": figure(1 / time_s),
        "speedup": figure(1.0),
        "epoch_s": None,
        "epochs": None,
        "time_s": figure(time_s),
        "cost": None if cost is None else figure(cost),
        "metric": None,
        "limited_by": "compute",
        "parts": {"compute": 1.0, "communication": 0.0},
    }
    return ProjectionRow(**(given | changes))  # type: ignore[arg-type]

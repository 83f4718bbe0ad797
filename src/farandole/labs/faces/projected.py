"""What the lab's larger numbers of workers would give, projected from what was measured here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from farandole.errors import FarandoleError
from farandole.format import listed
from farandole.labs.faces.plan import SCALING
from farandole.labs.faces.points import PROJECTED, Point, curves
from farandole.labs.lab import Found
from farandole.model.info.curve import Curve, Scaling
from farandole.model.projection.advice import project
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow
from farandole.model.projection.question import Question
from farandole.model.statistics import Estimate

LAB_COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The lab's counts beyond the measured ones."""

    points: tuple[Point, ...] = ()
    why_not: tuple[str, ...] = ()
    """In sentences: of which networks there are none, and why."""


def projected(found: Found, scaling: Scaling) -> Ahead:
    """Project to the lab's counts; a network whose runs tell too little has a sentence instead."""
    info, record = found.studies.get(SCALING), found.records.get(SCALING)
    if info is None or record is None:
        return Ahead()
    points: list[Point] = []
    failed: dict[str, list[str]] = {}
    for title, curve in curves(info, scaling).items():
        measured = max(point.workers for point in curve.points)
        beyond = tuple(count for count in LAB_COUNTS if count > measured and _divides(curve, count))
        if not beyond:
            continue
        # One host of as many cores: no other link than the measured one is needed.
        asked = Question(workers=beyond, per_host=max(beyond), only=(("model", _name(curve)),))
        try:
            made = project(record, replace(info, curves=(curve,)), asked)
        except FarandoleError as error:
            failed.setdefault(str(error), []).append(title)
            continue
        points += [_point(title, row) for row in made.rows if not row.measured]
    why_not = (f"Not projected: {listed(titles)}. {why}" for why, titles in failed.items())
    return Ahead(points=tuple(points), why_not=tuple(why_not))


def _name(curve: Curve) -> str:
    return dict(curve.points[0].cell.params)["model"]


def _divides(curve: Curve, count: int) -> bool:
    """Tell whether so many workers can share the batch, where it is shared."""
    return curve.scaling == "weak" or (curve.batch is not None and curve.batch % count == 0)


def _point(title: str, row: ProjectionRow) -> Point:
    return Point(
        source=PROJECTED,
        model=title,
        count=row.workers,
        batch=row.batch,
        throughput=_estimate(row.throughput),
        speedup=_estimate(row.speedup),
        step_s=None if row.step_s is None else _estimate(row.step_s),
    )


def _estimate(figure: Prediction) -> Estimate:
    return Estimate(value=figure.value, low=figure.low, high=figure.high)

"""What the lab's larger numbers of workers would give, projected from what was measured here."""

from __future__ import annotations

from dataclasses import replace

from farandole.errors import FarandoleError
from farandole.labs.faces.plan import SCALING
from farandole.labs.faces.points import PROJECTED, Point, curves
from farandole.labs.lab import Found
from farandole.model.info import Curve, Scaling
from farandole.model.projection.asked import Asked
from farandole.model.projection.outlook import Outlook
from farandole.model.projection.project import project
from farandole.model.projection.records import Projected
from farandole.model.statistics import Estimate

LAB_COUNTS = (1, 2, 4, 8)


def projected(found: Found, scaling: Scaling) -> list[Point]:
    """Return the lab's counts beyond the measured ones; empty when these tell too little."""
    info, record = found.studies.get(SCALING), found.records.get(SCALING)
    if info is None or record is None:
        return []
    points = []
    for title, curve in curves(info, scaling).items():
        measured = max(point.workers for point in curve.points)
        beyond = tuple(count for count in LAB_COUNTS if count > measured and _divides(curve, count))
        if not beyond:
            continue
        # One host of as many cores: no other link than the measured one is needed.
        asked = Asked(workers=beyond, per_host=max(beyond), only=(("model", _name(curve)),))
        try:
            made = project(record, replace(info, curves=(curve,)), asked)
        except FarandoleError:
            continue
        points += [_point(title, row) for row in made.rows if not row.measured]
    return points


def _name(curve: Curve) -> str:
    return dict(curve.points[0].cell.params)["model"]


def _divides(curve: Curve, count: int) -> bool:
    """Tell whether so many workers can share the batch, where it is shared."""
    return curve.scaling == "weak" or (curve.batch is not None and curve.batch % count == 0)


def _point(title: str, row: Outlook) -> Point:
    return Point(
        source=PROJECTED,
        model=title,
        count=row.workers,
        batch=row.batch,
        throughput=_estimate(row.throughput),
        speedup=_estimate(row.speedup),
        step_s=None if row.step_s is None else _estimate(row.step_s),
    )


def _estimate(figure: Projected) -> Estimate:
    return Estimate(value=figure.value, low=figure.low, high=figure.high)

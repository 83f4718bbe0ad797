"""What the studies and the published tables hold of each network, in one form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from farandole.labs.faces.plan import SCALING
from farandole.labs.faces.questions import MODELS
from farandole.labs.lab import Found
from farandole.model.analyse import analyse
from farandole.model.curves import scaled
from farandole.model.info.curve import Curve, CurvePoint, Scaling
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.study.records import Cell

HERE, CPU, GPU = "here", "lab, CPU", "lab, GPU"
"""Where figures come from."""
PROJECTED = "projected"
LAB_SOURCES = (CPU, GPU)

_ONE = Estimate(value=1.0, low=1.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One network on so many workers (here) or nodes (in the lab)."""

    source: str
    model: str
    """As the lab writes it."""
    count: int
    batch: int | None
    """Per worker."""
    throughput: Estimate | None
    """Images per second, over all workers."""
    speedup: Estimate | None
    step_s: Estimate | None = None

    @property
    def efficiency(self) -> Estimate | None:
        """Speedup over the number of workers or nodes."""
        return None if self.speedup is None else scaled(self.speedup, 1 / self.count)


def title_of(cell: Cell) -> str:
    """Return the network of a cell as the lab writes it."""
    name = dict(cell.params).get("model", "")
    return MODELS.get(name, name)


def curves(info: ScalingInfo | None, scaling: Scaling) -> dict[str, Curve]:
    """Return one curve per network: that of most worker counts."""
    found: dict[str, Curve] = {}
    for curve in info.curves if info else ():
        if curve.scaling != scaling or len(curve.points) < 2:
            continue
        title = title_of(curve.points[0].cell)
        if title not in found or len(found[title].points) < len(curve.points):
            found[title] = curve
    return {title: found[title] for title in MODELS.values() if title in found}


def measured(found: Found, scaling: Scaling) -> list[Point]:
    """Return what was measured here, network by network, by workers."""
    return [
        _point(HERE, title, point, point.workers)
        for title, curve in curves(found.studies.get(SCALING), scaling).items()
        for point in curve.points
        if point.valid
    ]


def published_weak(found: Found) -> list[Point]:
    """Return the lab's throughputs by nodes, CPU before GPU."""
    info = found.published.get("faces_weak")
    return [
        _point(source, title, point, point.cell.hosts)
        for source, device in ((CPU, "cpu"), (GPU, "gpu"))
        for title in MODELS.values()
        for curve in (info.curves if info else ())
        for point in curve.points
        if curve.scaling == "weak" and title_of(point.cell) == title
        if point.cell.device == device
    ]


def published_strong(found: Found) -> list[Point]:
    """Return the lab's speedups at a fixed global batch; one node is 1 by definition."""
    info = found.published.get("faces_strong")
    points = []
    for row in info.metrics if info else ():
        if row.metric != "speedup" or row.final is None:
            continue
        one = Point(
            source=CPU,
            model=title_of(row.cell),
            count=1,
            batch=None,
            throughput=None,
            speedup=_ONE,
        )
        points += [one, replace(one, count=row.cell.hosts, speedup=row.final)]
    return points


def last(points: Sequence[Point], model: str, source: str = HERE) -> Point | None:
    """Return a network's point of most workers; None unless there are several."""
    own = [point for point in points if point.model == model and point.source == source]
    most = max(own, key=lambda point: point.count, default=None)
    return most if most is not None and most.count > 1 else None


def first(points: Sequence[Point], model: str, source: str = HERE) -> Point | None:
    """Return a network's point of fewest workers."""
    own = [point for point in points if point.model == model and point.source == source]
    return min(own, key=lambda point: point.count, default=None)


def together(found: Found, *names: str) -> ScalingInfo | None:
    """Return what several studies say as one; None when none of them could be made.

    Their cells were not measured in turns: a drift of the machine between them is not cancelled.
    """
    records = [(name, found.records[name]) for name in names if name in found.records]
    if not records:
        return None
    launches = tuple(
        # Numbers of launches begin anew in each study.
        replace(launch, id=f"{name}/{launch.id}")
        for name, study in records
        for launch in study.launches
    )
    return analyse(replace(records[0][1], launches=launches))


def _point(source: str, title: str, point: CurvePoint, count: int) -> Point:
    return Point(
        source=source,
        model=title,
        count=count,
        batch=point.batch,
        throughput=point.throughput,
        speedup=point.speedup,
        step_s=point.step_s,
    )

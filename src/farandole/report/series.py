"""What stands side by side in a chart: curves and cells, named so that no two are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from farandole.model.info.comparison import Comparison
from farandole.model.info.curve import Curve
from farandole.model.info.scaling import ScalingInfo
from farandole.study.records import Cell


class Labelled(Protocol):
    """Whatever has a name for people."""

    @property
    def label(self) -> str: ...


class OfCell(Protocol):
    """Whatever was measured of one cell."""

    @property
    def cell(self) -> Cell: ...


T = TypeVar("T")
L = TypeVar("L", bound=Labelled)
C = TypeVar("C", bound=OfCell)

# As many as there are colours, shapes and dashes; more lines cannot be told apart.
MOST_SERIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Generic[T]):
    """One thing to draw or tabulate, with the name that the reader sees."""

    name: str
    item: T
    info: ScalingInfo


def studies(found: ScalingInfo | Comparison) -> tuple[ScalingInfo, ...]:
    """Return the studies of a report, under labels that differ."""
    if isinstance(found, ScalingInfo):
        return (found,)
    labels = unlike(info.label or "study" for info in found.infos)
    return tuple(
        replace(info, label=label) for info, label in zip(found.infos, labels, strict=True)
    )


def curves(infos: Sequence[ScalingInfo]) -> list[Named[Curve]]:
    """Return all curves whose throughput has the main one's unit, the main ones first."""
    found = [(info, curve) for info in infos for curve in info.curves]
    if not found:
        return []
    unit = found[0][1].unit
    alike = [(info, curve) for info, curve in found if curve.unit == unit]
    alike.sort(key=lambda pair: not pair[1].main)
    both = len({curve.scaling for _, curve in alike}) > 1
    names = [
        ", ".join(
            part
            for part in (
                info.label if len(infos) > 1 else "",
                f"{curve.scaling} scaling" if both else "",
                curve.label,
            )
            if part
        )
        or "measured"
        for info, curve in alike
    ]
    return [
        Named(name=name, item=curve, info=info)
        for name, (info, curve) in zip(unlike(names), alike, strict=True)
    ]


def on_several_hosts(found: Iterable[Curve]) -> bool:
    """Say whether curves have points on more than one host, so that each says where it is."""
    return any(point.cell.hosts > 1 for curve in found for point in curve.points)


def labelled(
    infos: Sequence[ScalingInfo], items: Callable[[ScalingInfo], Sequence[L]]
) -> list[Named[L]]:
    """Return items of all studies, each under its own label and, if there are several, theirs."""
    pairs = [(info, item) for info in infos for item in items(info)]
    return [
        Named(name=prefixed(infos, info, item.label), item=item, info=info) for info, item in pairs
    ]


def prefixed(infos: Sequence[ScalingInfo], info: ScalingInfo, label: str) -> str:
    """Return a label with its study's before it where there are several studies."""
    return f"{info.label}: {label}" if len(infos) > 1 else label


def foremost(items: Sequence[Named[C]], limit: int) -> list[Named[C]]:
    """Return as many as can be drawn, those of cells on main curves before all others."""
    ranked = sorted(items, key=lambda named: named.item.cell not in _main_cells(named.info))
    kept = ranked[:limit]
    return [named for named in items if any(named is other for other in kept)]


def left_out(drawn: int, there: int, noun: str) -> str:
    """Return a sentence on what a chart does not show; empty when it shows all."""
    if drawn == there:
        return ""
    return f" {drawn} of {there} {noun} are drawn; the table has all."


def _main_cells(info: ScalingInfo) -> set[Cell]:
    return {point.cell for curve in info.curves if curve.main for point in curve.points}


def unlike(names: Iterable[str]) -> list[str]:
    """Return the names with a number behind each one that was there before."""
    seen: set[str] = set()
    result = []
    for name in names:
        number, candidate = 1, name
        while candidate in seen:
            number += 1
            candidate = f"{name} ({number})"
        seen.add(candidate)
        result.append(candidate)
    return result

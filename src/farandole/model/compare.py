"""Several studies side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.format import plural
from farandole.model.analyse import ScalingInfo, analyse
from farandole.model.measured import Measured, measure
from farandole.model.statistics import Estimate, ratio
from farandole.model.verdicts import Verdict, faster_device_gains_nothing
from farandole.study.records import Cell, Study

_SAME = ("cpu", "physical_cores", "cores", "memory_bytes", "gpus")
"""What must be equal for two machines to be alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One group and worker count of one study, beside others."""

    study: str
    label: str
    """The cell in words."""
    cell: Cell
    throughput: Estimate | None
    unit: str
    speedup: Estimate | None
    """Within its own study."""
    final_metric: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several studies side by side, by label."""

    infos: tuple[ScalingInfo, ...]
    rows: tuple[ComparisonRow, ...]
    ratios: tuple[tuple[str, str, str, Estimate], ...]
    """(study, other study, cell label, throughput over the other's); empty when refused."""
    refused: str | None
    """Why ratios between studies are not given; None when they are."""
    metric: str | None
    verdicts: tuple[Verdict, ...]


def compare(
    studies: Sequence[Study],
    *,
    price_per_worker_hour: float | None = None,
    target: tuple[str, float] | None = None,
) -> Comparison:
    """Put studies side by side by label.

    Ratios of throughputs between studies are given only where the machines are alike: across
    unlike ones they would mix what the machine does with what the workers do.

    Raises:
        UsageError: when there are no studies.
    """
    if not studies:
        raise UsageError("There is no study to compare. Name at least one folder.")
    labels = unique_labels([study.label for study in studies])
    infos = [
        analyse(study, price_per_worker_hour=price_per_worker_hour, target=target)
        for study in studies
    ]
    refused = unlike_machines({name: s.machine for name, s in zip(labels, studies, strict=True)})
    metric = next((info.main_metric for info in infos if info.main_metric), None)
    rows = [
        row for name, info in zip(labels, infos, strict=True) for row in _rows(name, info, metric)
    ]
    ratios: list[tuple[str, str, str, Estimate]] = []
    measured = [measure(study)[0] for study in studies]
    void = [{found.cell for found in info.voids} for info in infos]
    if refused is None:
        for index in range(1, len(studies)):
            ours = [cell for cell in measured[index] if cell.cell not in void[index]]
            first = [cell for cell in measured[0] if cell.cell not in void[0]]
            ratios += [
                (labels[index], labels[0], label, found) for label, found in _ratios(ours, first)
            ]
    return Comparison(
        infos=tuple(infos),
        rows=tuple(rows),
        ratios=tuple(ratios),
        refused=refused,
        metric=metric,
        verdicts=_device_verdicts(labels, infos),
    )


def unlike_machines(machines: Mapping[str, Mapping[str, object]]) -> str | None:
    """Say why speeds may not be divided by each other; None when the machines are alike."""
    (first, reference), *others = machines.items()
    for name, machine in others:
        for key in _SAME:
            here, there = reference.get(key), machine.get(key)
            if not reference or not machine:
                return (
                    f"No ratios between {first} and {name}: one of them does not say on which "
                    "machine it was measured. Compare the speedups within each."
                )
            if key == "memory_bytes" and _about(here, there):
                continue
            if here != there:
                return (
                    f"No ratios between {first} and {name}: their machines differ ({key}: {here} "
                    f"and {there}). Compare the speedups within each."
                )
    return None


def unique_labels(labels: Sequence[str]) -> list[str]:
    """Number labels that occur more than once."""
    found: list[str] = []
    for label in labels:
        name, number = label or "study", 2
        while name in found:
            name, number = f"{label or 'study'} ({number})", number + 1
        found.append(name)
    return found


def _about(here: object, there: object) -> bool:
    """Tell whether two amounts of memory are the same but for what firmware keeps."""
    if not isinstance(here, (int, float)) or not isinstance(there, (int, float)):
        return here == there
    return abs(here - there) <= 0.02 * max(here, there)


def _rows(name: str, info: ScalingInfo, metric: str | None) -> list[ComparisonRow]:
    speedups = {
        point.cell: point.speedup
        for curve in reversed(info.curves)
        for point in curve.points
        if point.valid
    }
    finals = {row.cell: row.final for row in info.each("metrics") if row.metric == metric}
    return [
        ComparisonRow(
            study=name,
            label=row.label,
            cell=row.cell,
            throughput=row.throughput,
            unit=row.unit,
            speedup=speedups.get(row.cell),
            final_metric=finals.get(row.cell),
        )
        for row in info.rows
    ]


def _ratios(ours: Sequence[Measured], first: Sequence[Measured]) -> list[tuple[str, Estimate]]:
    """Divide what differs in nothing but the study."""
    found = []
    for cell in ours:
        other = next((one for one in first if one.cell == cell.cell), None)
        if other is None:
            continue
        unit = next((u for u in (cell.unit, other.unit) if cell.rates(u) and other.rates(u)), "")
        if unit:
            found.append((cell.label, ratio(cell.rates(unit), other.rates(unit))))
    return found


def _device_verdicts(labels: Sequence[str], infos: Sequence[ScalingInfo]) -> tuple[Verdict, ...]:
    """Look for a faster device that gains nothing, at equal workers, batch and parameters."""
    speeds: dict[object, dict[str, Estimate]] = {}
    units: dict[object, tuple[str, str]] = {}
    for name, info in zip(labels, infos, strict=True):
        gpus = info.machine.get("gpus")
        void = {found.cell for found in info.voids}
        for row in info.rows:
            if row.throughput is None or row.cell.today or row.cell in void:
                continue
            device = row.cell.device
            if device not in ("cpu", "unknown") and isinstance(gpus, (list, tuple)) and gpus:
                device = str(gpus[0])
            key = (row.cell.workers, row.cell.batch, row.cell.params, row.unit)
            speeds.setdefault(key, {})[f"{device} ({name})"] = row.throughput
            units[key] = (plural(row.cell.workers, "worker"), row.unit)
    verdicts = [faster_device_gains_nothing(found, *units[key]) for key, found in speeds.items()]
    return tuple(verdict for verdict in verdicts if verdict is not None)

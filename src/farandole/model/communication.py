"""Communication per cell: measured, derived as the labs did, and against the link's peak.

And what workers of a host cost each other without a word between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farandole.format import percent
from farandole.model.curves import group_of
from farandole.model.measured import TOO_BUSY, Measured
from farandole.model.pace import Pace, dataset_size, positive, stated
from farandole.model.split import StepSplit
from farandole.study.records import Apart, Cell, Launch, Link

BYTES_PER_PARAMETER = 4
"""float32, which the labs and almost every data-parallel job send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication of a cell: measured, and derived as the labs did."""

    cell: Cell
    label: str
    gradient_bytes: int | None
    """Payload per step and rank."""
    measured_s: float | None
    """Per step: the transfer as the rank that waited least saw it, hidden parts included."""
    exposed_s: float | None
    """Per step: what training waited for, mean over ranks."""
    derived_s: float | None
    """Per step: T(N) - T(1) at the same batch per worker; T(N) - T(1)/N at the same global one."""
    contention_s: float | None = None
    """Per step: what of T(N) - T(1) N workers cost each other without sending anything."""
    derived_epoch_s: float | None
    """Per epoch: T(N) - T(1)/N, the labs' figure."""
    bus_bytes_per_s: float | None
    """2(N-1)/N x gradient bytes / measured_s."""
    derived_bus_bytes_per_s: float | None
    peak_bytes_per_s: float | None
    utilisation: float | None
    """bus_bytes_per_s / peak_bytes_per_s."""
    bytes_by_kind: Mapping[str, float]
    """Payload per step over all ranks, by kind; empty when not measured."""
    total_bytes_by_kind: Mapping[str, int]
    """Over the whole launch and all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPoint:
    """One all-reduce of the calibration."""

    workers: int
    bytes: int
    seconds: float
    bus_bytes_per_s: float
    utilisation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Copies of the script that ran at once, each for itself: one alone, and all together."""

    cell: Cell
    """The cell whose workers they would have been."""
    label: str
    computing_alone_s: float | None
    """Of a step: all but waiting for data and the update."""
    computing_together_s: float | None
    update_alone_s: float | None
    update_together_s: float | None
    contention_s: float | None
    """What a step, without waiting for data, takes longer with all at once."""
    slowdown: float | None
    """How many times as long it takes then."""
    loaded_alone_per_s: float | None
    """Samples per second and worker that come when nothing is done with them."""
    loaded_together_per_s: float | None
    trained_per_s: float | None
    """Samples per second and worker that training takes."""
    why_not: str
    """Why figures are missing or do not count; empty when all do."""


def derived_communication_s(many_s: float, one_s: float, workers: int) -> float:
    """Return T(N) - T(1)/N, the labs' figure, for times of the same amount of work."""
    return many_s - one_s / workers


def bus_bandwidth(payload_bytes: float, seconds: float, workers: int) -> float:
    """Return 2(N-1)/N x bytes / seconds, what a ring all-reduce moves per link and second.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009; nccl-tests' busbw.
    """
    return 2 * (workers - 1) / workers * payload_bytes / seconds


def steps_per_epoch(samples: int, batch: int, workers: int) -> float:
    """Return samples / global batch, not rounded: the labs' formulas use it so."""
    return samples / (batch * workers)


def communicate(
    found: Measured,
    cells: Sequence[Measured],
    split: StepSplit | None,
    link: Link,
    spec: Mapping[str, object],
    apart: Sequence[Apart] = (),
) -> Communication | None:
    """Return what is known of a cell's communication; None for one worker."""
    workers = found.cell.workers
    if workers < 2 or found.cell.today:
        return None
    gradient_bytes = payload_bytes(found, spec)
    measured = _measured_s(found)
    derived_step, derived_epoch, steps = _derived(found, cells, spec)
    bus = derived_bus = None
    if gradient_bytes and measured:
        bus = bus_bandwidth(gradient_bytes, measured, workers)
    if gradient_bytes and steps and derived_epoch is not None and derived_epoch > 0:
        derived_bus = bus_bandwidth(gradient_bytes * steps, derived_epoch, workers)
    elif gradient_bytes and derived_step is not None and derived_step > 0:
        derived_bus = bus_bandwidth(gradient_bytes, derived_step, workers)
    totals, per_step = _bytes_by_kind(found.ended_well)
    peak = link_peak(link)
    if (
        all(figure is None for figure in (gradient_bytes, measured, derived_step, derived_epoch))
        and not totals
    ):
        return None
    return Communication(
        cell=found.cell,
        label=found.label,
        gradient_bytes=gradient_bytes,
        measured_s=measured,
        exposed_s=split.exposed_s if split else None,
        derived_s=derived_step,
        contention_s=contention_s(apart, found.cell),
        derived_epoch_s=derived_epoch,
        bus_bytes_per_s=bus,
        derived_bus_bytes_per_s=derived_bus,
        peak_bytes_per_s=peak,
        utilisation=bus / peak if bus and peak else None,
        bytes_by_kind=per_step,
        total_bytes_by_kind=totals,
    )


def link_peak(link: Link) -> float | None:
    """Return the most that the link was seen to carry, so that nothing is above 100 % of it.

    All-reduces that fit into a shared cache can be faster than one long message.
    """
    if not link.peak_bytes_per_s:
        return None
    seen = (
        bus_bandwidth(size, seconds, workers)
        for workers, size, seconds in link.allreduce
        if seconds > 0 and workers > 1
    )
    return max([link.peak_bytes_per_s, *seen])


def calibration(link: Link) -> tuple[LinkPoint, ...]:
    """Return the all-reduce sweep as bus bandwidths."""
    points = []
    peak = link_peak(link)
    for workers, size, seconds in link.allreduce:
        if seconds > 0 and workers > 1:
            bus = bus_bandwidth(size, seconds, workers)
            share = bus / peak if peak else None
            points.append(
                LinkPoint(
                    workers=workers,
                    bytes=size,
                    seconds=seconds,
                    bus_bytes_per_s=bus,
                    utilisation=share,
                )
            )
    return tuple(sorted(points, key=lambda point: (point.workers, point.bytes)))


def one_worker(
    found: Measured, cells: Sequence[Measured], *, same_global_batch: bool
) -> Measured | None:
    """Return the cell of one worker to compare with, at the same batch per worker or globally."""
    batch = found.global_batch if same_global_batch else found.worker_batch
    for other in cells:
        same = group_of(other.cell) == group_of(found.cell) and not other.cell.today
        if same and other.cell.workers == 1 and other.worker_batch == batch:
            return other
    return None


def _derived(
    found: Measured, cells: Sequence[Measured], spec: Mapping[str, object]
) -> tuple[float | None, float | None, float | None]:
    """Return communication per step and per epoch, and steps per epoch."""
    workers = found.cell.workers
    samples = next((size for one in found.launches if (size := dataset_size(one, spec))), None)
    batch = found.worker_batch
    steps = steps_per_epoch(samples, batch, workers) if samples and batch else None
    weak = one_worker(found, cells, same_global_batch=False)
    strong = one_worker(found, cells, same_global_batch=True) if found.batch else None
    per_step = per_epoch = None
    if weak and weak.step_s and found.step_s:
        per_step = found.step_s.value - weak.step_s.value
    elif strong and strong.step_s and found.step_s:
        per_step = derived_communication_s(found.step_s.value, strong.step_s.value, workers)
    many, one = found.throughput("epochs/s"), weak.throughput("epochs/s") if weak else None
    if many and one:
        per_epoch = derived_communication_s(1 / many.value, 1 / one.value, workers)
        if per_step is None and steps:
            per_step = per_epoch / steps
    elif per_step is not None and steps:
        per_epoch = per_step * steps
    return per_step, per_epoch, steps


def payload_bytes(found: Measured, spec: Mapping[str, object]) -> int | None:
    """Return the bytes of gradients per step and rank: recorded, stated, or by parameters."""
    for launch in found.ended_well:
        sizes = [rank.gradient_bytes_per_step for rank in launch.ranks]
        known = [size for size in sizes if size]
        if known:
            return max(known)
        size = stated(launch, "gradient_bytes")
        parameters = stated(launch, "parameters") or positive(spec.get("parameters"))
        counted = [rank.parameters for rank in launch.ranks if rank.parameters]
        if size:
            return int(size)
        if parameters or counted:
            return BYTES_PER_PARAMETER * int(parameters or max(counted))
    return None


def _measured_s(found: Measured) -> float | None:
    """Return the transfer per step, as seen by the rank that waited least for the others."""
    times = [seconds for pace in found.paces if (seconds := _transfer_s(pace)) is not None]
    return float(np.mean(times)) if times else None


def _transfer_s(pace: Pace) -> float | None:
    if not len(pace.typical):
        return None
    columns = [rank.steps.communication_s[pace.typical] for rank in pace.launch.ranks]
    least = np.min(columns, axis=0)
    least = least[np.isfinite(least) & (least > 0)]
    return float(np.median(least)) if len(least) else None


def _bytes_by_kind(launches: Sequence[Launch]) -> tuple[dict[str, int], dict[str, float]]:
    for launch in launches:
        totals: dict[str, int] = {}
        for rank in launch.ranks:
            for kind, size in rank.bytes_sent.items():
                totals[kind] = totals.get(kind, 0) + size
        steps = max((len(rank.steps) for rank in launch.ranks), default=0)
        if totals and steps:
            return totals, {kind: size / steps for kind, size in totals.items()}
    return {}, {}


def quiet(apart: Sequence[Apart]) -> tuple[Apart, ...]:
    """Return those whose figures count: others did not take too much of the machine."""
    return tuple(one for one in apart if (one.foreign_share or 0.0) <= TOO_BUSY)


def alone_s(one: Apart) -> float | None:
    """Return a step of one copy alone, without waiting for data."""
    return _whole(one.computing_alone_s, one.update_alone_s)


def together_s(one: Apart) -> float | None:
    """Return a step of all copies at once, without waiting for data."""
    return _whole(one.computing_together_s, one.update_together_s)


def contention_s(apart: Sequence[Apart], cell: Cell) -> float | None:
    """Return what the workers of a cell cost each other in a step; None where nobody measured it.

    It is what T(N) is above T(1) for another reason than communication.
    """
    for one in quiet(apart):
        alone, together = alone_s(one), together_s(one)
        if one.cell == cell and alone is not None and together is not None:
            return together - alone
    return None


def contention_rows(apart: Sequence[Apart], cells: Sequence[Measured]) -> tuple[Contention, ...]:
    """Return what was measured, beside what training took."""
    by_cell = {found.cell: found for found in cells}
    return tuple(_contention(one, by_cell[one.cell]) for one in apart if one.cell in by_cell)


def _contention(one: Apart, found: Measured) -> Contention:
    why_not = one.why_not
    if one not in quiet([one]):
        why_not = f"other programs took {percent(one.foreign_share)} of the cores"
        one = Apart(cell=one.cell)
    alone, together, batch = alone_s(one), together_s(one), found.worker_batch
    return Contention(
        cell=one.cell,
        label=found.label,
        computing_alone_s=one.computing_alone_s,
        computing_together_s=one.computing_together_s,
        update_alone_s=one.update_alone_s,
        update_together_s=one.update_together_s,
        contention_s=contention_s([one], one.cell),
        slowdown=together / alone if alone and together else None,
        loaded_alone_per_s=one.loaded_alone_per_s,
        loaded_together_per_s=one.loaded_together_per_s,
        trained_per_s=batch / found.step_s.value if batch and found.step_s else None,
        why_not=why_not,
    )


def _whole(computing_s: float | None, update_s: float | None) -> float | None:
    return None if computing_s is None else computing_s + (update_s or 0.0)

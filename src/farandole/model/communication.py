"""Communication per cell: measured, derived as the labs did, and against the link's peak.

And what workers of a host cost each other without a word between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farandole.format import percent
from farandole.model.curves import group_of
from farandole.model.measured import TOO_BUSY, Measured, Pace, positive, stated
from farandole.model.split import StepSplit
from farandole.model.statistics import known_mean
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


def measure_contention(one: Apart, found: Measured) -> Contention:
    """Return what workers of a host cost each other, beside what training took."""
    why_not = one.why_not
    if not quiet([one]):
        why_not = f"other programs took {percent(one.foreign_share)} of the cores"
        one = Apart(cell=one.cell)
    alone = together = None
    if one.computing_alone_s is not None:
        alone = one.computing_alone_s + (one.update_alone_s or 0.0)
    if one.computing_together_s is not None:
        together = one.computing_together_s + (one.update_together_s or 0.0)
    batch = found.worker_batch
    return Contention(
        cell=one.cell,
        label=found.label,
        computing_alone_s=one.computing_alone_s,
        computing_together_s=one.computing_together_s,
        update_alone_s=one.update_alone_s,
        update_together_s=one.update_together_s,
        contention_s=None if alone is None or together is None else together - alone,
        slowdown=together / alone if alone and together else None,
        loaded_alone_per_s=one.loaded_alone_per_s,
        loaded_together_per_s=one.loaded_together_per_s,
        trained_per_s=batch / found.step_s.value if batch and found.step_s else None,
        why_not=why_not,
    )


def quiet(apart: Iterable[Apart]) -> tuple[Apart, ...]:
    """Return those whose figures count: others did not take too much of the machine."""
    return tuple(one for one in apart if (one.foreign_share or 0.0) <= TOO_BUSY)


def communicate(
    found: Measured,
    cells: Sequence[Measured],
    split: StepSplit | None,
    link: Link,
    spec: Mapping[str, object],
    contention: Contention | None = None,
) -> Communication | None:
    """Return what is known of a cell's communication; None for one worker."""
    workers = found.cell.workers
    if workers < 2 or found.cell.today:
        return None
    size = payload_bytes(found, spec)
    measured = known_mean(map(_transfer_s, found.paces))
    per_step, per_epoch, steps = _derived(found, cells)
    totals, by_kind = _bytes_by_kind(found.ended_well)
    if not totals and size is None and measured is None and per_step is None and per_epoch is None:
        return None
    bus = bus_bandwidth(size, measured, workers) if size and measured else None
    derived_bus = None
    if size and steps and per_epoch is not None and per_epoch > 0:
        derived_bus = bus_bandwidth(size * steps, per_epoch, workers)
    elif size and per_step is not None and per_step > 0:
        derived_bus = bus_bandwidth(size, per_step, workers)
    peak = link_peak(link)
    return Communication(
        cell=found.cell,
        label=found.label,
        gradient_bytes=size,
        measured_s=measured,
        exposed_s=split.exposed_s if split else None,
        derived_s=per_step,
        contention_s=contention.contention_s if contention else None,
        derived_epoch_s=per_epoch,
        bus_bytes_per_s=bus,
        derived_bus_bytes_per_s=derived_bus,
        peak_bytes_per_s=peak,
        utilisation=bus / peak if bus and peak else None,
        bytes_by_kind=by_kind,
        total_bytes_by_kind=totals,
    )


def link_peak(link: Link) -> float | None:
    """Return the most that the link was seen to carry, so that nothing is above 100 % of it.

    All-reduces that fit into a shared cache can be faster than one long message.
    """
    if not link.peak_bytes_per_s:
        return None
    return max([link.peak_bytes_per_s, *(bus for *_, bus in _allreduces(link))])


def calibration(link: Link) -> tuple[LinkPoint, ...]:
    """Return the all-reduce sweep as bus bandwidths."""
    peak = link_peak(link)
    return tuple(
        LinkPoint(
            workers=workers,
            bytes=size,
            seconds=seconds,
            bus_bytes_per_s=bus,
            utilisation=bus / peak if peak else None,
        )
        for workers, size, seconds, bus in sorted(_allreduces(link), key=lambda one: one[:2])
    )


def _allreduces(link: Link) -> list[tuple[int, int, float, float]]:
    """Return workers, bytes, seconds and bus bandwidth of each that was measured."""
    return [
        (workers, size, seconds, bus_bandwidth(size, seconds, workers))
        for workers, size, seconds in link.allreduce
        if seconds > 0 and workers > 1
    ]


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
    found: Measured, cells: Sequence[Measured]
) -> tuple[float | None, float | None, float | None]:
    """Return communication per step and per epoch, and steps per epoch."""
    workers, samples, batch = found.cell.workers, found.samples, found.worker_batch
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
        recorded = max((rank.gradient_bytes_per_step or 0 for rank in launch.ranks), default=0)
        parameters = (
            stated(launch, "parameters")
            or positive(spec.get("parameters"))
            or max((rank.parameters or 0 for rank in launch.ranks), default=0)
        )
        size = recorded or stated(launch, "gradient_bytes") or BYTES_PER_PARAMETER * int(parameters)
        if size:
            return int(size)
    return None


def _transfer_s(pace: Pace) -> float | None:
    """Return the transfer per step, as seen by the rank that waited least for the others."""
    if not len(pace.typical):
        return None
    columns = [rank.steps.communication_s[pace.typical] for rank in pace.launch.ranks]
    least = np.min(columns, axis=0)
    least = least[np.isfinite(least) & (least > 0)]
    return float(np.median(least)) if len(least) else None


def _bytes_by_kind(launches: Sequence[Launch]) -> tuple[dict[str, int], dict[str, float]]:
    """Return the payload of the first launch that counted it, in all and per step."""
    for launch in launches:
        totals: Counter[str] = Counter()
        for rank in launch.ranks:
            totals.update(rank.bytes_sent)
        steps = max((len(rank.steps) for rank in launch.ranks), default=0)
        if totals and steps:
            return dict(totals), {kind: size / steps for kind, size in totals.items()}
    return {}, {}

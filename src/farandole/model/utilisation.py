"""What the workers of a cell used: cores, GPU, memory, on average and over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from farandole.model.measured import Measured, stated
from farandole.model.statistics import known_mean
from farandole.study.records import Cell, Floats, Launch, Rank

_POINTS = 200
"""Of a series that is drawn: more than a chart has pixels for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationRow:
    """What the workers of a cell used, on average and at most."""

    cell: Cell
    label: str
    cpu: float | None
    """Mean share of its threads that a worker kept busy (of one core where threads are unknown)."""
    gpu: float | None
    memory_bytes: float | None
    """Largest high-water mark of any worker."""
    gpu_memory_bytes: float | None
    energy_j: float | None
    by_rank: tuple[tuple[int, float | None, float | None, float | None], ...]
    """(rank, cpu, gpu, memory bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationSeries:
    """One worker's utilisation over time, thinned to at most 200 points."""

    cell: Cell
    label: str
    launch: str
    rank: int
    time_s: tuple[float, ...]
    cpu: tuple[float | None, ...]
    gpu: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]


def utilise(found: Measured) -> UtilisationRow | None:
    """Return a cell's mean utilisation while it trained; None when nothing was sampled."""
    launches = [one for one in found.ended_well if not one.busy] or found.ended_well
    ranks: dict[int, list[tuple[Launch, Rank]]] = {}
    for launch in launches:
        for rank in launch.ranks:
            ranks.setdefault(rank.rank, []).append((launch, rank))
    threads = found.cell.threads or 1
    by_rank = []
    for number, same in sorted(ranks.items()):
        cores = known_mean(_while_training(one, rank, rank.utilisation.cpu) for one, rank in same)
        share = known_mean(_while_training(one, rank, rank.utilisation.gpu) for one, rank in same)
        peak = _largest(rank.peak_memory_bytes for _, rank in same)
        by_rank.append((number, None if cores is None else cores / threads, share, peak))
    cpu, gpu = (known_mean(entry[column] for entry in by_rank) for column in (1, 2))
    if cpu is None:
        cpu = known_mean(stated(launch, "cpu_utilisation") for launch in launches)
    if gpu is None:
        gpu = known_mean(stated(launch, "gpu_utilisation") for launch in launches)
    memory = _largest(peak for *_, peak in by_rank)
    if cpu is None and gpu is None and memory is None:
        return None
    return UtilisationRow(
        cell=found.cell,
        label=found.label,
        cpu=cpu,
        gpu=gpu,
        memory_bytes=memory,
        gpu_memory_bytes=_largest(rank.peak_gpu_bytes for one in launches for rank in one.ranks),
        energy_j=_energy(launches[0]) if launches else None,
        by_rank=tuple(by_rank),
    )


def utilisation_series(found: Measured) -> tuple[UtilisationSeries, ...]:
    """Return utilisation over time of a cell's longest launch, an undisturbed one where it is."""

    def samples(launch: Launch) -> int:
        return max((len(rank.utilisation.time_s) for rank in launch.ranks), default=0)

    launches = [one for one in found.ended_well if not one.busy] or found.ended_well
    launch = max(launches, key=samples, default=None)
    if launch is None or samples(launch) < 2:
        return ()
    threads = found.cell.threads or 1
    series = []
    for rank in launch.ranks:
        use = rank.utilisation
        chosen = np.unique(np.linspace(0, len(use.time_s) - 1, _POINTS).astype(int))
        if len(use.time_s):
            series.append(
                UtilisationSeries(
                    cell=found.cell,
                    label=found.label,
                    launch=launch.id,
                    rank=rank.rank,
                    time_s=tuple(use.time_s[chosen].tolist()),
                    cpu=_optional(use.cpu[chosen] / threads),
                    gpu=_optional(use.gpu[chosen]),
                    memory_bytes=_optional(use.memory_bytes[chosen]),
                )
            )
    return tuple(series)


def _while_training(launch: Launch, rank: Rank, values: Floats) -> float | None:
    """Return the mean from the first step on: imports and data preparation are not training."""
    if launch.begin_s is not None and len(rank.steps):
        first = rank.steps.end_s[0] - launch.begin_s
        training = values[rank.utilisation.time_s >= first]
        values = training if len(training) else values
    return known_mean(values.tolist())


def _energy(launch: Launch) -> float | None:
    read = [rank.utilisation.gpu_energy_j for rank in launch.ranks]
    known = [energy[np.isfinite(energy)] for energy in read]
    spent = [float(energy[-1] - energy[0]) for energy in known if len(energy) > 1]
    return sum(spent) if spent else None


def _optional(values: Floats) -> tuple[float | None, ...]:
    return tuple(value if np.isfinite(value) else None for value in values.tolist())


def _largest(values: Iterable[float | None]) -> float | None:
    return max((float(value) for value in values if value is not None), default=None)

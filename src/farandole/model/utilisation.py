"""What the workers of a cell used: cores, GPU, memory, on average and over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farandole.model.measured import Measured
from farandole.model.pace import stated
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
    quiet = tuple(launch for launch in found.ended_well if not launch.busy)
    launches = quiet or found.ended_well
    ranks = sorted({rank.rank for launch in launches for rank in launch.ranks})
    by_rank = []
    for number in ranks:
        same = [(one, rank) for one in launches for rank in one.ranks if rank.rank == number]
        by_rank.append(
            (
                number,
                known_mean(
                    [_while_training(one, rank, rank.utilisation.cpu) for one, rank in same]
                ),
                known_mean(
                    [_while_training(one, rank, rank.utilisation.gpu) for one, rank in same]
                ),
                _largest([rank.peak_memory_bytes for _, rank in same]),
            )
        )
    threads = found.cell.threads or 1
    cores = known_mean([cpu for _, cpu, _, _ in by_rank if cpu is not None])
    gpu = known_mean([share for _, _, share, _ in by_rank if share is not None])
    if gpu is None:
        gpu = known_mean([stated(launch, "gpu_utilisation") for launch in launches])
    if cores is None:
        cores = known_mean([stated(launch, "cpu_utilisation") for launch in launches])
        threads = 1
    memory = _largest([memory for *_, memory in by_rank])
    if cores is None and gpu is None and memory is None:
        return None
    every = [rank for launch in launches for rank in launch.ranks]
    return UtilisationRow(
        cell=found.cell,
        label=found.label,
        cpu=None if cores is None else cores / threads,
        gpu=gpu,
        memory_bytes=memory,
        gpu_memory_bytes=_largest([rank.peak_gpu_bytes for rank in every]),
        energy_j=_energy(launches[0]) if launches else None,
        by_rank=tuple(
            (number, None if cpu is None else cpu / threads, share, peak)
            for number, cpu, share, peak in by_rank
        ),
    )


def utilisation_series(found: Measured) -> tuple[UtilisationSeries, ...]:
    """Return utilisation over time of one launch of a cell, the longest that ended well."""
    sampled = [
        launch
        for launch in found.ended_well
        if any(len(rank.utilisation.time_s) > 1 for rank in launch.ranks)
    ]
    if not sampled:
        return ()
    launch = max(sampled, key=lambda one: max(len(r.utilisation.time_s) for r in one.ranks))
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
    good = values[np.isfinite(values)]
    return float(good.mean()) if len(good) else None


def _energy(launch: Launch) -> float | None:
    spent = []
    for rank in launch.ranks:
        energy = rank.utilisation.gpu_energy_j
        energy = energy[np.isfinite(energy)]
        if len(energy) > 1:
            spent.append(float(energy[-1] - energy[0]))
    return sum(spent) if spent else None


def _optional(values: Floats) -> tuple[float | None, ...]:
    return tuple(value if np.isfinite(value) else None for value in values.tolist())


def _largest(values: list[int | None] | list[float | None]) -> float | None:
    good = [float(value) for value in values if value is not None]
    return max(good) if good else None

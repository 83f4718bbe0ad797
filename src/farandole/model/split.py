"""Where a step's time goes, per cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farandole.model.measured import Measured
from farandole.model.pace import Pace
from farandole.model.statistics import known_mean
from farandole.study.records import Cell, Floats, Launch

_PARTS = ("data_s", "exposed_s", "optimizer_s", "waiting_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSplit:
    """Where a typical step of a cell goes. The parts that were measured add up to `step_s`."""

    cell: Cell
    label: str
    step_s: float
    data_s: float | None
    compute_s: float | None
    """Forward, backward, and whatever of the others was not measured."""
    transfer_s: float | None
    """Exposed communication without the wait for slower ranks."""
    waiting_s: float | None
    """For the slowest peer; None across hosts."""
    exposed_s: float | None
    """transfer + waiting, known also where the two cannot be told apart."""
    optimizer_s: float | None
    hidden_s: float | None
    """Communication that ran beside computing; not part of the sum."""
    slowest_rank: int | None
    """The rank that the others waited for most often."""
    slowest_share: float | None
    """In which share of the steps."""
    compute_by_rank_s: tuple[tuple[int, float], ...] = ()

    def parts(self) -> dict[str, float | None]:
        """Return the parts in the order in which they are stacked."""
        parts = {
            "data": self.data_s,
            "compute": self.compute_s,
            "transfer": self.transfer_s,
            "waiting": self.waiting_s,
            "optimizer": self.optimizer_s,
        }
        if self.transfer_s is None and self.exposed_s is not None:
            parts["transfer"] = self.exposed_s
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaunchSplit:
    """Mean seconds over the typical steps and all ranks of one launch; NaN if not measured."""

    duration_s: float
    data_s: float
    exposed_s: float
    optimizer_s: float
    waiting_s: float
    communication_s: float
    compute_by_rank_s: dict[int, float]
    last: dict[int, int]
    """How often each rank was the last to be ready."""


def split_step(found: Measured) -> StepSplit | None:
    """Split a cell's typical step into its parts; None when no steps were recorded.

    Parts are means over the steps whose duration lies in the middle half of their launch, over all
    ranks and launches, and scaled so that they add up to the cell's step time.
    """
    launches = [split for pace in found.paces if (split := _split(pace)) is not None]
    step = found.step_s
    if not launches or step is None:
        return None
    duration = known_mean([split.duration_s for split in launches])
    if duration is None or duration <= 0:
        return None
    scale = step.value / duration
    means = {name: known_mean([getattr(split, name) for split in launches]) for name in _PARTS}
    communication = known_mean([split.communication_s for split in launches])
    data, exposed, optimizer, waiting = (
        None if means[name] is None else means[name] * scale  # type: ignore[operator]
        for name in _PARTS
    )
    single = found.cell.workers == 1
    if single:
        exposed, waiting = exposed or 0.0, 0.0
    if exposed is None:
        waiting = None
    rest = step.value - sum(part for part in (data, exposed, optimizer) if part is not None)
    hidden = None
    if communication is not None and exposed is not None:
        hidden = max(0.0, communication * scale - exposed)
    last: dict[int, int] = {}
    for split in launches:
        for rank, times in split.last.items():
            last[rank] = last.get(rank, 0) + times
    slowest = max(last, key=lambda rank: last[rank]) if last else None
    ranks = sorted({rank for split in launches for rank in split.compute_by_rank_s})
    return StepSplit(
        cell=found.cell,
        label=found.label,
        step_s=step.value,
        data_s=data,
        compute_s=max(0.0, rest),
        transfer_s=None if exposed is None or waiting is None else exposed - waiting,
        waiting_s=waiting,
        exposed_s=exposed,
        optimizer_s=optimizer,
        hidden_s=0.0 if single else hidden,
        slowest_rank=slowest,
        slowest_share=None if slowest is None else last[slowest] / sum(last.values()),
        compute_by_rank_s=tuple(
            (rank, mean * scale)
            for rank in ranks
            if (mean := known_mean([s.compute_by_rank_s.get(rank, np.nan) for s in launches]))
            is not None
        ),
    )


def waiting_for_slowest(launch: Launch, steps: npt.NDArray[np.intp]) -> Floats | None:
    """Return ranks x steps: how long each rank waited for the last one to be ready.

    The ranks' `ready_s` are on one clock only within a host, so None across hosts. Waiting is part
    of the exposed communication and never exceeds it.
    """
    if len(launch.ranks) < 2 or len({rank.host for rank in launch.ranks}) > 1:
        return None
    ready = np.stack([rank.steps.ready_s[steps] for rank in launch.ranks])
    exposed = np.stack([rank.steps.exposed_s[steps] for rank in launch.ranks])
    waiting: Floats = np.minimum(ready.max(axis=0) - ready, np.maximum(exposed, 0.0))
    return waiting


def _split(pace: Pace) -> _LaunchSplit | None:
    index, ranks = pace.typical, pace.launch.ranks
    if not len(index):
        return None

    def column(name: str) -> Floats:
        return np.stack([getattr(rank.steps, name)[index] for rank in ranks])

    duration, data, exposed = column("duration_s"), column("data_s"), column("exposed_s")
    optimizer, communication = column("optimizer_s"), column("communication_s")
    waiting = waiting_for_slowest(pace.launch, index)
    compute = duration.copy()
    for part in (data, exposed, optimizer):
        compute -= np.where(np.isfinite(part), part, 0.0)
    last: dict[int, int] = {}
    if waiting is not None:
        ready = column("ready_s")
        ready = ready[:, np.isfinite(ready).all(axis=0)]
        for position in ready.argmax(axis=0) if ready.size else ():
            last[ranks[position].rank] = last.get(ranks[position].rank, 0) + 1
    return _LaunchSplit(
        duration_s=_average(duration),
        data_s=_average(data),
        exposed_s=_average(exposed),
        optimizer_s=_average(optimizer),
        waiting_s=np.nan if waiting is None else _average(waiting),
        communication_s=_average(communication),
        compute_by_rank_s={
            rank.rank: _average(row) for rank, row in zip(ranks, compute, strict=True)
        },
        last=last,
    )


def _average(values: Floats) -> float:
    """Return the mean; NaN as soon as most of it was not measured."""
    good = values[np.isfinite(values)]
    return float(good.mean()) if 2 * good.size > values.size else float("nan")

"""Where a step's time goes, per cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farandole.model.measured import Measured, Pace
from farandole.model.statistics import known_mean
from farandole.study.records import Cell, Floats, Launch

_PARTS = ("data_s", "exposed_s", "optimizer_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Where a typical step goes. The parts that were measured add up to its duration."""

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
class StepSplit(StepParts):
    """Where a typical step of a cell goes, and of each of its ranks."""

    cell: Cell
    label: str
    step_s: float
    hidden_s: float | None
    """Communication that ran beside computing; not part of the sum."""
    slowest_rank: int | None
    """The rank that the others waited for most often."""
    slowest_share: float | None
    """In which share of the steps."""
    compute_by_rank_s: tuple[tuple[int, float], ...] = ()
    by_rank: tuple[tuple[int, StepParts], ...] = ()

    def share(self, part: float | None) -> float:
        """Return a part's share of the step; 0 when it was not measured."""
        return 0.0 if part is None or self.step_s <= 0 else part / self.step_s

    @property
    def others_wait(self) -> float:
        """The share of a step that ranks other than the slowest wait for it."""
        workers = self.cell.workers
        # The mean over all ranks counts the slowest one, which does not wait.
        return min(1.0, self.share(self.waiting_s) * workers / max(workers - 1, 1))


def split_step(found: Measured) -> StepSplit | None:
    """Split a cell's typical step into its parts; None when no steps were recorded.

    Parts are means over the steps whose duration lies in the middle half of their launch, over all
    ranks and launches, and scaled so that they add up to the cell's step time.
    """
    launches = [_launch_means(pace) for pace in found.paces if len(pace.typical)]
    step, means = found.step_s, [means for means, _, _ in launches]
    duration = known_mean(one["duration_s"] for one in means)
    if step is None or duration is None or duration <= 0:
        return None
    per_second, single = step.value / duration, found.cell.workers == 1
    parts = _scaled(means, per_second, single=single)
    rest = sum(parts[name] or 0.0 for name in _PARTS)
    communication, hidden = parts.pop("communication_s"), None
    if communication is not None and parts["exposed_s"] is not None:
        hidden = max(0.0, communication - parts["exposed_s"])
    last = sum((counts for _, _, counts in launches), Counter[int]())
    slowest = max(last, key=lambda rank: last[rank]) if last else None
    by_rank = {
        rank: _scaled([by_rank[rank] for _, by_rank, _ in launches if rank in by_rank], per_second)
        for rank in sorted({rank for _, by_rank, _ in launches for rank in by_rank})
    }
    for one in by_rank.values():
        del one["communication_s"]
    return StepSplit(
        **(parts | {"compute_s": max(0.0, step.value - rest)}),
        cell=found.cell,
        label=found.label,
        step_s=step.value,
        hidden_s=0.0 if single else hidden,
        slowest_rank=slowest,
        slowest_share=None if slowest is None else last[slowest] / last.total(),
        compute_by_rank_s=tuple(
            (rank, one["compute_s"])
            for rank, one in by_rank.items()
            if one["compute_s"] is not None
        ),
        by_rank=tuple((rank, StepParts(**one)) for rank, one in by_rank.items()),
    )


def _scaled(
    means: Sequence[Mapping[str, float]], per_second: float, *, single: bool = False
) -> dict[str, float | None]:
    """Return the parts of a step from the means of launches; one worker waits for nobody."""
    names = (*_PARTS, "compute_s", "waiting_s", "communication_s")
    known = {name: known_mean(one[name] for one in means) for name in names}
    duration = known_mean(one["duration_s"] for one in means) or 0.0
    # Threads may wait for several things at once; the parts never exceed the whole.
    whole = max(duration, sum(known[name] or 0.0 for name in _PARTS))
    scale = per_second * duration / whole if whole > 0 else per_second
    found = {name: None if mean is None else mean * scale for name, mean in known.items()}
    found["compute_s"] = None if found["compute_s"] is None else max(0.0, found["compute_s"])
    exposed, waiting = found["exposed_s"], found["waiting_s"]
    if single:
        exposed, waiting = exposed or 0.0, 0.0
    waiting = None if exposed is None or waiting is None else min(waiting, exposed)
    transfer = None if exposed is None or waiting is None else exposed - waiting
    return found | {"exposed_s": exposed, "waiting_s": waiting, "transfer_s": transfer}


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


def _launch_means(
    pace: Pace,
) -> tuple[dict[str, float], dict[int, dict[str, float]], Counter[int]]:
    """Return the means of a launch's typical steps, the same by rank, and who was last how often.

    Means are in seconds over all ranks; NaN where most of it was not measured.
    """
    ranks = pace.launch.ranks
    columns = {
        name: np.stack([getattr(rank.steps, name)[pace.typical] for rank in ranks])
        for name in (*_PARTS, "duration_s", "communication_s", "ready_s")
    }
    known = sum(np.nan_to_num(columns[name]) for name in _PARTS)
    columns["compute_s"] = columns["duration_s"] - known
    columns["waiting_s"] = np.full_like(known, np.nan)
    last: Counter[int] = Counter()
    waiting = waiting_for_slowest(pace.launch, pace.typical)
    if waiting is not None:
        columns["waiting_s"] = waiting
        ready = columns["ready_s"][:, np.isfinite(columns["ready_s"]).all(axis=0)]
        last.update(ranks[place].rank for place in ready.argmax(axis=0))
    by_rank = {
        rank.rank: {name: _average(column[place]) for name, column in columns.items()}
        for place, rank in enumerate(ranks)
    }
    return {name: _average(column) for name, column in columns.items()}, by_rank, last


def _average(values: Floats) -> float:
    """Return the mean; NaN as soon as most of it was not measured."""
    good = values[np.isfinite(values)]
    return float(good.mean()) if 2 * good.size > values.size else float("nan")

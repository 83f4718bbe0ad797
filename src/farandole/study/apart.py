"""Workers apart: a launch in which copies of the script run at once, each for itself.

It tells what workers of a host cost each other (memory, caches, cores, disks) from what they send
each other. The figures of a calibration; nothing else of such a launch is used.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from farandole.format import plural
from farandole.study import folder
from farandole.study.attempt import Setting, attempt
from farandole.study.plan import Planned
from farandole.study.read import read_rank
from farandole.study.records import Apart, Cell, Launch, Steps
from farandole.study.spec import Spec
from farandole.study.template import fill

_GOOD = ("ok", "stopped")
# Beside what a launch of the same workers took: they begin as those did, and have no more to do.
_EXTRA_S = 60.0
_TOO_SHORT = "the script ended before a few steps had been made"


def to_measure(spec: Spec, done: Iterable[Launch], known: Iterable[Apart]) -> list[Launch]:
    """Return a launch for each number of workers on a host that has no figures yet.

    Somebody may have mended since what was in the way.
    """
    measured = {one.cell.workers for one in known if one.computing_together_s is not None}
    found: dict[int, Launch] = {}
    for launch in done:
        cell = launch.cell
        fits = 1 < cell.workers <= spec.room.per_host and cell.hosts == 1 and not cell.today
        speed = launch.purpose in ("speed", "epoch") and launch.outcome in _GOOD
        if fits and speed and cell.workers not in measured:
            found.setdefault(cell.workers, launch)
    return [found[workers] for workers in sorted(found)]


def measure_apart(setting: Setting, like: Launch, study: Path, *, left_s: float | None) -> Apart:
    """Let copies of the script compute and load alone and at once; return what they took.

    Args:
        setting: of the study's launches.
        like: a launch with as many workers, whose cell the copies are of.
        study: the study's folder, which keeps what the copies recorded.
        left_s: what the study still may take.

    Raises:
        Interrupted: Somebody ended it.
        TimeIsOver: The study's time was over.
    """
    spec, cell = setting.spec, like.cell
    if spec.launcher is not None:
        return Apart(cell=cell, why_not=f"{spec.launcher} starts the workers, not Farandole")
    if spec.jobs:
        return Apart(cell=cell, why_not="each launch is a job of its own")
    setting.listener.say(
        f"Measuring what {plural(cell.workers, 'worker')} cost each other, for a few seconds."
    )
    place = folder.apart_folder(study, cell.workers)
    shutil.rmtree(place, ignore_errors=True)
    (place / folder.WORK).mkdir(parents=True)
    one = Planned(
        cell=cell if spec.sets_batch else replace(cell, batch=None), purpose="speed", repeat=0
    )
    copies = replace(setting, spec=_spec_of_copies(spec, cell, like.wall_s))
    launch = attempt(copies, one, place, left_s=left_s)
    shares = [share for share in (launch.foreign_share, launch.steal_share) if share is not None]
    found = read_apart_launch(place, cell)
    why_not = launch.reason if launch.outcome not in _GOOD else found.why_not
    return replace(found, foreign_share=sum(shares) if shares else None, why_not=why_not)


def _spec_of_copies(spec: Spec, cell: Cell, wall_s: float | None) -> Spec:
    values = {"workers": 1} | ({} if cell.batch is None else {"global_batch": cell.batch})
    return replace(
        spec,
        command=(
            *(sys.executable, "-m", "farandole.study.apart_worker"),
            *fill(spec.command, values),
        ),
        throughput=None,
        metrics=(),
        launch_timeout_s=min(spec.timeout_s, 2 * (wall_s or 0.0) + _EXTRA_S),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """What one of the copies recorded."""

    steps: Steps
    told: dict[str, Any]

    def computing_s(self, phase: str) -> float | None:
        """Return a median step of a phase, without waiting for data and without the update."""
        own_s = self.steps.duration_s
        for part in (self.steps.data_s, self.steps.optimizer_s):
            own_s = own_s - np.nan_to_num(part)
        return self._median(own_s, phase)

    def update_s(self, phase: str) -> float | None:
        return self._median(self.steps.optimizer_s, phase)

    def _median(self, column: Any, phase: str) -> float | None:
        first, end = self.told.get(phase, (0, 0))
        values = column[first:end]
        values = values[np.isfinite(values)]
        return float(np.median(values)) if len(values) else None


def read_apart_launch(place: Path, cell: Cell) -> Apart:
    """Return what copies of the script have recorded in a folder."""
    copies = [_read_copy(folder.copy_folder(place, copy)) for copy in range(cell.workers)]
    found = [copy for copy in copies if copy is not None]
    if len(found) < len(copies) or not all("together" in copy.told for copy in found):
        return Apart(cell=cell, why_not=_TOO_SHORT)
    return Apart(
        cell=cell,
        computing_alone_s=found[0].computing_s("alone"),
        computing_together_s=_mean([copy.computing_s("together") for copy in found]),
        update_alone_s=found[0].update_s("alone"),
        update_together_s=_mean([copy.update_s("together") for copy in found]),
        loaded_alone_per_s=found[0].told.get("loaded_alone"),
        loaded_together_per_s=_mean([copy.told.get("loaded_together") for copy in found]),
    )


def _read_copy(place: Path) -> _Copy | None:
    path = folder.rank_file(place, 0)
    rank = read_rank(path) if path.exists() else None
    if rank is None:
        return None
    told: dict[str, Any] = {}
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):  # a last line that was cut short
            content = json.loads(line)
            if isinstance(content, dict) and content.get("kind") == "apart":
                told |= content
    return _Copy(steps=rank.steps, told=told)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None

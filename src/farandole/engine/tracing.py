"""Drawing operations into a timeline while they run: `start_timeline`, `stop_timeline`.

One timeline per process, whatever number of engines it has; where there is none, each operation
costs a look at `tracer`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farandole.engine.loop import Running
from farandole.errors import UsageError
from farandole.recorder.timeline import LiveTimeline, Session
from farandole.world.environment import World

_CYCLES = "cycles"
_DYNAMIC = "DYNAMIC"


class Tracer:
    """Draws a track per name: first the agreement on it, then the operation."""

    def __init__(self, timeline: LiveTimeline, *, mark_cycles: bool) -> None:
        """Begin.

        Args:
            timeline: Where to draw.
            mark_cycles: Whether to mark each time that operations were agreed on.
        """
        self._timeline, self._mark_cycles = timeline, mark_cycles
        self._since_s: dict[str, float] = {}

    def submitted(self, name: str) -> None:
        """Hear that this rank has submitted an operation."""
        self._since_s[name] = time.monotonic()

    def agreed(self, names: Sequence[str], kind: str) -> None:
        """Hear that all ranks have."""
        now_s = time.monotonic()
        for name in names:
            begin_s = self._since_s.get(name)
            if begin_s is not None:
                self._timeline.slice(name, f"NEGOTIATE_{_upper(kind)}", begin_s, now_s)
            self._since_s[name] = now_s
        if self._mark_cycles:
            self._timeline.mark(_CYCLES, "CYCLE_START", now_s)

    def ended(self, names: Sequence[str], kind: str) -> None:
        """Hear that operations are done, or have failed."""
        now_s = time.monotonic()
        for name in names:
            begin_s = self._since_s.pop(name, None)
            if begin_s is not None:
                self._timeline.slice(name, _upper(kind), begin_s, now_s)
        self._timeline.keep_up(now_s)

    def follow(self, steps: Running, names: Sequence[str], kind: str) -> Running:
        """Let operations run that all ranks have agreed on by now, and hear of their end."""
        self.agreed(names, kind)
        return self._followed(steps, names, kind)

    def close(self) -> None:
        """Write what is left."""
        self._timeline.flush()

    def _followed(self, steps: Running, names: Sequence[str], kind: str) -> Running:
        try:
            return (yield from steps)
        finally:
            self.ended(names, kind)


tracer: Tracer | None = None
_sessions: Counter[str] = Counter()


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Draw all operations from here on into a file that ui.perfetto.dev shows.

    Ranks that call this with the same file draw into it together, on one clock. It is a whole
    Chrome trace at every moment.

    Args:
        file_path: In a folder that exists; a file that is there is replaced.
        mark_cycles: Whether to mark each time that operations were agreed on.

    Raises:
        ValueError: init() was not called, HOROVOD_TIMELINE names a file that is being written, or
            this one cannot be.
    """
    from farandole.engine import context

    world = context.current().world
    static = os.environ.get("HOROVOD_TIMELINE", _DYNAMIC)
    if static not in ("", _DYNAMIC):
        raise UsageError(
            f"HOROVOD_TIMELINE={static} has a timeline written from init() on. Set "
            "HOROVOD_TIMELINE=DYNAMIC to begin and end timelines in the script."
        )
    _begin(world, Path(file_path), mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """End the timeline; without one it does nothing.

    Raises:
        ValueError: init() was not called.
    """
    from farandole.engine import context

    context.current()
    end()


def begin_from(environ: Any, world: World) -> None:
    """Begin the timeline that HOROVOD_TIMELINE names, if it names one."""
    path = environ.get("HOROVOD_TIMELINE", "")
    if path not in ("", _DYNAMIC):
        marks = environ.get("HOROVOD_TIMELINE_MARK_CYCLES", "0")
        _begin(world, Path(path), mark_cycles=marks.lower() in ("1", "true"))


def end() -> None:
    """End the timeline, if there is one."""
    global tracer
    before, tracer = tracer, None
    if before is not None:
        before.close()


def _begin(world: World, path: Path, *, mark_cycles: bool) -> None:
    global tracer
    end()
    path = path.absolute()
    _sessions[str(path)] += 1
    # Other launchers do not always name a job, but start all workers of a host themselves.
    job = world.job_id or f"started by {os.getppid()}"
    session = Session(job=job, number=_sessions[str(path)])
    try:
        timeline = LiveTimeline(path, session, rank=world.rank, host=world.hostname)
    except OSError as error:
        raise UsageError(
            f"The timeline cannot be written to {path}: {error.strerror}. Name a file in a folder "
            "that exists and can be written to."
        ) from error
    tracer = Tracer(timeline, mark_cycles=mark_cycles)


def _upper(kind: str) -> str:
    """Return Horovod's word: ALLREDUCE, GROUPED_ALLREDUCE."""
    return kind.partition(" (")[0].upper().replace(" ", "_")

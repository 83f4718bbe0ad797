"""A timeline that is written while the run goes on: the ranks' operations in one file.

What `--timeline` writes at the end of a run has steps, data and optimizer; this has every named
operation, as Horovod's timeline does, and is there at every moment.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from farandole.recorder.timeline import FIRST_PID, MICROSECONDS, TIDS_PER_PID, about
from farandole.recorder.trace_file import Origin, Session, TraceFile

_EVERY_S = 1.0
# An addition copies the file: of a rank's time it may take a fiftieth.
_REST = 50


class LiveTimeline:
    """One rank's part of a timeline."""

    def __init__(
        self,
        path: Path,
        session: Session,
        *,
        rank: int,
        host: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin the file, or join in.

        Raises:
            OSError: It cannot be written.
        """
        self._file, self._pid, self._clock = TraceFile(path, session), FIRST_PID + rank, clock
        now_s = clock()
        self._offset_s = time.time() - now_s
        mine = Origin(host=host, monotonic_s=now_s, unix_s=now_s + self._offset_s)
        origin = self._file.begin(mine)
        # Ranks of a host have one monotonic clock; hosts agree as well as their clocks of the day.
        self._zero_s = origin.monotonic_s if origin.host == host else origin.unix_s - self._offset_s
        self._lock = threading.Lock()
        self._tids: dict[str, int] = {}
        self._lines: list[str] = []
        # The first operation is seen at once: a program may do no other for long.
        self._due_s = now_s
        self._later: threading.Timer | None = None
        """Flushes when that is due, should nobody come by."""
        self._describe(0, "process_name", name=f"rank {rank} ({host})")
        self._describe(0, "process_sort_index", sort_index=rank)

    def slice(self, track: str, name: str, begin_s: float, end_s: float) -> None:
        """Draw something that took time."""
        start, stop = self._micros(begin_s), self._micros(end_s)
        self._event(track, ph="X", name=name, ts=start, dur=round(stop - start, 3))

    def mark(self, track: str, name: str, time_s: float) -> None:
        """Mark a moment."""
        self._event(track, ph="i", s="p", name=name, ts=self._micros(time_s))

    def keep_up(self, now_s: float) -> None:
        """Add what has come together to the file once the last addition is long enough ago."""
        if now_s >= self._due_s:
            self.flush()
            return
        with self._lock:
            if self._later is None and self._due_s < math.inf:
                self._later = threading.Timer(self._due_s - now_s, self.flush)
                self._later.name, self._later.daemon = "farandole-timeline", True
                self._later.start()

    def flush(self) -> None:
        """Add what has come together to the file; a full disk ends the timeline, not the run."""
        with self._lock:
            later, self._later = self._later, None
            self._add()
        if later is not None and later is not threading.current_thread():
            later.cancel()
            later.join()

    def _add(self) -> None:
        # Another thread may draw meanwhile.
        lines = self._lines[:]
        del self._lines[: len(lines)]
        began_s = self._clock()
        if not lines:
            return
        try:
            self._file.add(lines)
        except OSError as error:
            sys.stderr.write(f"farandole: the timeline ends here: {error}\n")
            self._due_s = math.inf
            return
        now_s = self._clock()
        self._due_s = now_s + max(_EVERY_S, _REST * (now_s - began_s))

    def _micros(self, time_s: float) -> float:
        return round((time_s - self._zero_s) * MICROSECONDS, 3)

    def _event(self, track: str, **fields: Any) -> None:
        tid = self._tids.get(track)
        if tid is None:
            tid = self._tids[track] = self._pid * TIDS_PER_PID + len(self._tids)
            self._describe(tid, "thread_name", name=track)
            self._describe(tid, "thread_sort_index", sort_index=len(self._tids))
        self._lines.append(json.dumps({"cat": track, "pid": self._pid, "tid": tid, **fields}))

    def _describe(self, tid: int, kind: str, **arguments: Any) -> None:
        self._lines.append(json.dumps(about(self._pid, tid, kind, **arguments)))

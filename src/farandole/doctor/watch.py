"""`run --doctor`: looks now and then at what the workers of a real run record.

Only checks that work on what FARANDOLE_RECORD=watch records are applied, and each finding is told
of once. What grows with the run is passed over: only the first steps and the last states are kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from farandole.doctor.check import Finding, checks, diagnose
from farandole.doctor.facts import Ended, Job, Rank, read_rank

_FIRST_LOOK_S = 5.0
_LONGEST_S = 60.0
_FIRST_BLOCKS = 50
"""Blocks of steps: those of the first epoch, mostly."""
_FIRST_STATES = 4
_LAST_STATES = 8
_PASSED_OVER = tuple(
    b'{"kind": "%s"' % kind for kind in (b"use", b"metric", b"buckets", b"noise", b"note")
)


@dataclass
class _Tail:
    """What is kept of a worker's file, which was read to a place."""

    place: int = 0
    steps: int = 0
    blocks: int = 0
    states: int = 0
    kept: list[bytes] = field(default_factory=list)
    last_states: deque[bytes] = field(default_factory=lambda: deque(maxlen=_LAST_STATES))

    def read(self, file: Path) -> Rank | None:
        """Read on, and return the worker as far as it is known."""
        with file.open("rb") as opened:
            opened.seek(self.place)
            data = opened.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.place += len(whole)
        for line in whole.splitlines():
            self._take(line)
        rank = read_rank(b"\n".join([*self.kept, *self.last_states]))
        return None if rank is None else replace(rank, steps=max(rank.steps, self.steps))

    def _take(self, line: bytes) -> None:
        if line.startswith(b'{"kind": "steps"'):
            self.blocks += 1
            if self.blocks <= _FIRST_BLOCKS:
                self.kept.append(line)
        elif line.startswith(b'{"kind": "state"'):
            self.states += 1
            (self.kept if self.states <= _FIRST_STATES else self.last_states).append(line)
        elif not line.startswith(_PASSED_OVER):
            self.kept.append(line)


class Watcher:
    """Looks at a run from a thread of its own; `with` ends it, and looks once more."""

    def __init__(self, folder: Path, *, workers: int, tell: Callable[[Finding], None]) -> None:
        self._folder, self._workers, self._tell = folder, workers, tell
        self._checks = [one for one in checks().values() if one.cheap]
        self._tails: dict[str, _Tail] = {}
        self._told: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="farandole-doctor", daemon=True)

    def __enter__(self) -> Watcher:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look a last time, when all workers have written their ends."""
        self._over.set()
        self._thread.join()
        self.look(ended="ok")

    def look(self, *, ended: Ended = "stopped") -> None:
        """Read what was added, and tell of what is found now."""
        for file in sorted(self._folder.glob("rank-*.jsonl")):
            if ".events." not in file.name:
                self._tails.setdefault(file.name, _Tail())
        ranks = [tail.read(self._folder / name) for name, tail in self._tails.items()]
        known = tuple(rank for rank in ranks if rank is not None)
        # Files are written at other times: until its end a run is like one that was cut off.
        job = Job(ranks=known, workers=self._workers, ended=ended)
        for finding in diagnose(job, self._checks).findings:
            if finding.id not in self._told:
                self._told.add(finding.id)
                self._tell(finding)

    def _run(self) -> None:
        wait_s = _FIRST_LOOK_S
        while not self._over.wait(wait_s):
            self.look()
            wait_s = min(2 * wait_s, _LONGEST_S)

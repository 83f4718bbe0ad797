"""One timeline of all ranks, for ui.perfetto.dev or chrome://tracing.

What each rank recorded becomes a process with a track each for data, compute, communication, the
part of it that training waited for, and the optimizer; CPU, memory and metrics are counters. Where
a rank kept events (FARANDOLE_TIMELINE=1), they are drawn; where it did not, its steps tell enough.

A live timeline is whole and valid at every moment: every addition makes a new file and renames it
into the old one's place. Copying what is there already makes additions dearer the longer the file
is; who adds waits the longer for it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from farandole.errors import UsageError

Line = Mapping[str, Any]

TRACKS = ("step", "data", "compute", "communication", "exposed wait", "optimizer")
"""The order in which a rank's tracks are shown; others follow by name."""
MICROSECONDS = 1e6
# Perfetto takes process and thread 0 for the kernel's idle task.
FIRST_PID = 1
TIDS_PER_PID = 100_000
_COUNTERS = {"cpu": ("CPU (cores)", 1.0), "memory_bytes": ("memory (MB)", 1e6)}

Slice = tuple[str, str, float, float]
"""Track, name, begin and end; monotonic seconds."""


def write(folder: Path, target: Path) -> int:
    """Merge what the ranks of a launch left in a folder into one trace file.

    Returns:
        How many ranks are in it.

    Raises:
        UsageError: The file cannot be written.
    """
    ranks = read(folder)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(trace(ranks), file, separators=(",", ":"), allow_nan=False)
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UsageError(
            f"The timeline cannot be written to {target}: {error.strerror}. Name a file in a "
            "folder that exists and can be written to."
        ) from error
    return len(ranks)


def read(folder: Path) -> dict[int, list[Line]]:
    """Read the lines of rank-N.jsonl and rank-N.events.jsonl, by rank."""
    ranks: dict[int, list[Line]] = {}
    for path in sorted(folder.glob("rank-*.jsonl")):
        number = path.name.removeprefix("rank-").partition(".")[0]
        if number.isdecimal():
            ranks.setdefault(int(number), []).extend(_lines(path))
    return ranks


def _lines(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                continue  # torn: the worker was killed in the middle of it
            if isinstance(line, dict):
                yield line


def trace(ranks: Mapping[int, Sequence[Line]]) -> dict[str, Any]:
    """Make the trace: an object in the Trace Event Format."""
    clocks = _clocks(ranks)
    events: list[dict[str, Any]] = []
    for rank in sorted(ranks):
        if rank in clocks:
            events += _rank_events(rank, ranks[rank], clocks[rank])
    return {"traceEvents": events, "displayTimeUnit": "ms"}


class _Clock:
    """From a host's monotonic seconds to the trace's microseconds."""

    def __init__(self, begin_s: float, offset_s: float, zero_unix_s: float) -> None:
        self.begin_s = begin_s
        self._shift_s = offset_s - zero_unix_s

    def __call__(self, time_s: float) -> float:
        return round((time_s + self._shift_s) * MICROSECONDS, 3)


def _clocks(ranks: Mapping[int, Sequence[Line]]) -> dict[int, _Clock]:
    """Bring all ranks to one clock that begins with the first of them.

    Ranks of one host share its monotonic clock exactly; hosts are only as close to each other as
    their clocks of the day.
    """
    begins = {}
    for rank in sorted(ranks):
        begin = next((line for line in ranks[rank] if line.get("kind") == "begin"), None)
        if begin is not None:
            begins[rank] = begin
    offsets: dict[str, float] = {}
    for begin in begins.values():
        offsets.setdefault(str(begin["host"]), begin["begin_unix_s"] - begin["begin_s"])
    unix_s = {r: offsets[str(b["host"])] + b["begin_s"] for r, b in begins.items()}
    zero_unix_s = min(unix_s.values(), default=0.0)
    return {
        rank: _Clock(begin["begin_s"], offsets[str(begin["host"])], zero_unix_s)
        for rank, begin in begins.items()
    }


def _rank_events(rank: int, lines: Sequence[Line], clock: _Clock) -> list[dict[str, Any]]:
    begin = next(line for line in lines if line.get("kind") == "begin")
    pid = FIRST_PID + rank
    tracks: dict[str, list[Slice]] = {}
    for found in _from_events(lines):
        tracks.setdefault(found[0], []).append(found)
    kept = set(tracks)
    for found in (*_from_steps(lines, clock.begin_s), *_from_epochs(lines)):
        # What was seen happening counts more than what its sums tell.
        if found[0] not in kept:
            tracks.setdefault(found[0], []).append(found)
    events = [
        about(pid, 0, "process_name", name=f"rank {rank} ({begin['host']})"),
        about(pid, 0, "process_sort_index", sort_index=rank),
    ]
    for index, track in enumerate(sorted(tracks, key=_order)):
        tid = pid * TIDS_PER_PID + index
        events.append(about(pid, tid, "thread_name", name=track))
        events.append(about(pid, tid, "thread_sort_index", sort_index=index))
        for _, name, begin_s, end_s in _apart(tracks[track]):
            start, stop = clock(begin_s), clock(end_s)
            events.append(
                {
                    "ph": "X",
                    "name": name,
                    "cat": track,
                    "pid": pid,
                    "tid": tid,
                    "ts": start,
                    "dur": round(stop - start, 3),
                }
            )
    for name, time_s, value in _counters(lines):
        events.append(
            {
                "ph": "C",
                "name": name,
                "pid": pid,
                "tid": pid * TIDS_PER_PID,
                "ts": clock(clock.begin_s + time_s),
                "args": {"value": value},
            }
        )
    return events


def about(pid: int, tid: int, kind: str, **arguments: Any) -> dict[str, Any]:
    """Make an event that describes a process or a track."""
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": arguments}


def _order(track: str) -> tuple[int, str]:
    return (TRACKS.index(track) if track in TRACKS else len(TRACKS), track)


def _apart(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Order a track's slices; shorten those that would overlap, which viewers cannot draw."""
    reached_s = -math.inf
    for track, name, begin_s, end_s in sorted(slices, key=lambda s: (s[2], s[3])):
        begin_s = max(begin_s, reached_s)
        if end_s > begin_s:
            yield track, name, begin_s, end_s
            reached_s = end_s


def _from_events(lines: Sequence[Line]) -> Iterator[Slice]:
    for line in lines:
        if line.get("kind") == "event":
            yield str(line["track"]), str(line["name"]), line["begin_s"], line["end_s"]


def _from_epochs(lines: Sequence[Line]) -> Iterator[Slice]:
    passes = [line for line in lines if line.get("kind") == "epoch"]
    for number, line in enumerate(passes):
        yield "epochs", f"epoch {number + 1}", line["begin_s"], line["end_s"]


def _from_steps(lines: Sequence[Line], begin_s: float) -> Iterator[Slice]:
    """Draw steps from their sums: data first, the optimizer last, computing between them."""
    number, before_s = 0, math.nan
    for line in lines:
        if line.get("kind") != "steps":
            continue
        columns = line["columns"]
        for index, end_s in enumerate(columns["end_s"]):
            step = {
                name: math.nan if values[index] is None else float(values[index])
                for name, values in columns.items()
            }
            start_s = before_s
            if math.isnan(start_s):
                # The first step began somewhere in the script's beginning: its data wait does not
                # tell where, its gradients do.
                start_s = _least(step["done_s"] - step["communication_s"], end_s)
            yield from _of_step(number, step, max(start_s, begin_s), float(end_s))
            number, before_s = number + 1, float(end_s)


def _of_step(
    number: int, step: Mapping[str, float], start_s: float, end_s: float
) -> Iterator[Slice]:
    def known(name: str) -> float:
        value = step.get(name, math.nan)
        return 0.0 if math.isnan(value) else value

    label = f"step {number}"
    yield "step", label, start_s, end_s
    data_s = start_s + known("data_s")
    optimizer_s = end_s - known("optimizer_s")
    yield "data", "wait for data", start_s, data_s
    yield "optimizer", "update", optimizer_s, end_s
    done_s = step.get("done_s", math.nan)
    done_s = optimizer_s if math.isnan(done_s) else done_s
    yield "communication", "gradients", done_s - known("communication_s"), done_s
    waited_s = done_s - known("exposed_s")
    yield "exposed wait", "wait for gradients", waited_s, done_s
    yield "compute", label, data_s, min(waited_s, optimizer_s)


def _least(one: float, other: float) -> float:
    return other if math.isnan(one) else min(one, other)


def _counters(lines: Sequence[Line]) -> Iterator[tuple[str, float, float]]:
    for line in lines:
        if line.get("kind") == "use":
            columns = line["columns"]
            for column, (name, unit) in _COUNTERS.items():
                for time_s, value in zip(columns["time_s"], columns[column], strict=False):
                    if value is not None:
                        yield name, time_s, value / unit
        elif line.get("kind") == "metric" and line.get("time_s") is not None:
            value = line["value"]
            # NaN and infinities stand there as strings; a trace has no place for them.
            if isinstance(value, int | float):
                yield str(line["name"]), line["time_s"], value


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


_BEGIN, _BETWEEN, _END = b"[\n", b",\n", b"\n]\n"
_HEADER_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Whose events a file has: all ranks of a job say the same."""

    job: str
    number: int
    """Counts the timelines of the job that go to the same file."""

    def follows(self, other: Session) -> bool:
        """Say whether this is the same session or a later one of the same job."""
        return self.job == other.job and self.number >= other.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The zero of a file's times, and on whose clock: of the rank that began it."""

    host: str
    monotonic_s: float
    unix_s: float


class TraceFile:
    """One timeline in the making."""

    def __init__(self, path: Path, session: Session) -> None:
        self._path, self._session = path, session

    def begin(self, mine: Origin) -> Origin:
        """Begin the file unless another rank has; return the zero that counts for all.

        Raises:
            OSError: It cannot be written.
        """
        with self._locked():
            there = self._header()
            if there is not None and there[0].follows(self._session):
                return there[1]
            header = {
                "name": "timeline",
                "ph": "M",
                "pid": 0,
                "args": {
                    "session": asdict(self._session),
                    "origin": asdict(mine),
                    "start_time_since_epoch_in_micros": round(mine.unix_s * 1e6),
                },
            }
            self._replace(None, [json.dumps(header)])
            return mine

    def add(self, lines: Sequence[str]) -> None:
        """Add events; those of a timeline that has been replaced by a later one are dropped.

        Raises:
            OSError: It cannot be written.
        """
        with self._locked():
            there = self._header()
            if there is not None and there[0] == self._session:
                with self._path.open("rb") as before:
                    self._replace(before, lines)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The folder, since the file itself is another one after every addition.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _header(self) -> tuple[Session, Origin] | None:
        try:
            with self._path.open("rb") as file:
                head = file.read(_HEADER_BYTES).splitlines()
        except FileNotFoundError:
            return None
        try:
            arguments: dict[str, Any] = json.loads(head[1].rstrip(b","))["args"]
            return Session(**arguments["session"]), Origin(**arguments["origin"])
        except (IndexError, KeyError, TypeError, ValueError):
            return None  # somebody else's file, which the user has named

    def _replace(self, before: IO[bytes] | None, lines: Sequence[str]) -> None:
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as file:
                if before is None:
                    file.write(_BEGIN)
                else:
                    _copy(before, file, os.fstat(before.fileno()).st_size - len(_END))
                    file.write(_BETWEEN)
                file.write(_BETWEEN.join(line.encode() for line in lines) + _END)
            unfinished.replace(self._path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _copy(source: IO[bytes], target: IO[bytes], count: int) -> None:
    while count > 0:
        chunk = source.read(min(count, _CHUNK_BYTES))
        if not chunk:
            raise OSError("the timeline has been cut short")
        target.write(chunk)
        count -= len(chunk)

"""The recorder of one worker: told of events as they happen, it writes blocks of lines.

Hot paths only add to lists and numbers. Every two seconds, and at the end, what has come together
goes to `rank-N.jsonl` by one call. Times are of `time.monotonic`, one clock for all workers of a
host: what one of them waited for another is found when the files are read.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.errors import FarandoleError
from farandole.launch.startup import SLOW_IMPORTS
from farandole.recorder import ending
from farandole.recorder.steps import (
    Later,
    Metrics,
    OpenStep,
    Writer,
    line,
    steps_line,
    take_settled,
)

if TYPE_CHECKING:
    from farandole.recorder.calls import CallLog
    from farandole.recorder.contention import Contention
    from farandole.recorder.ending import Stopper
    from farandole.recorder.samples import SampleLog

RECORD_DIR = "FARANDOLE_RECORD_DIR"
STOP = "FARANDOLE_STOP"
TIMELINE = "FARANDOLE_TIMELINE"
PARAMS = "FARANDOLE_PARAMS"
APART = "FARANDOLE_APART"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The variables of a study that concern the recorder."""

    folder: str
    stop: str | None = None
    """The rule's JSON; it is read when something is recorded."""
    timeline: bool = False
    apart: str | None = None
    """JSON, for a copy of a script in a calibration."""


def read_settings(environ: Mapping[str, str]) -> Settings | None:
    """Read the variables; None when nothing is to be recorded."""
    folder = environ.get(RECORD_DIR)
    if not folder:
        return None
    return Settings(
        folder=folder,
        stop=environ.get(STOP) or None,
        timeline=environ.get(TIMELINE) == "1",
        apart=environ.get(APART) or None,
    )


def interpreter_began_s() -> float:
    """Return when this process started, on the monotonic clock."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        return ticks / os.sysconf("SC_CLK_TCK") - asleep_s
    except (OSError, ValueError, AttributeError):
        return time.monotonic()


SCHEMA = 1
BYTE_KINDS = ("gradients", "buffers", "parameters", "objects", "other", "control")
_BLOCK_S = 2.0
WAITING = "Waiting for data was not measured"
"""How a note about it begins."""

Source = Callable[[], "Mapping[str, Any] | None"]


class Recorder:
    """What one worker tells; made by `current()`, or by hand in tests."""

    def __init__(
        self,
        settings: Settings,
        *,
        rank: int,
        size: int,
        host: str,
        stopper: Stopper | Contention | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the rank's file.

        Raises:
            FileExistsError: another process records this rank already.
            OSError: the folder cannot be written to.
        """
        self.rank, self.size = rank, size
        self.steps = 0
        """Steps that have ended."""
        self.epochs = 0
        """Passes over the training data that have ended."""
        self.stopped = False
        """Whether the study has ended this launch."""
        self.calls: CallLog | None = None
        """Where the script's own collectives are told of, if the doctor asks."""
        self.inputs: SampleLog | None = None
        """Where samples are told of that no DataLoader gives, if the doctor asks."""
        self.timeline = settings.timeline
        """Whether `event` keeps anything."""
        self.begin_s = interpreter_began_s()
        self._clock, self._stopper = clock, stopper
        stem = os.path.join(settings.folder, f"rank-{rank}")  # noqa: PTH118 (imports on use)
        self._writer = Writer(f"{stem}.jsonl", exclusive=True)
        self._events_writer = Writer(f"{stem}.events.jsonl") if settings.timeline else None
        self._lock = threading.Lock()
        self._closed = False
        self._lines: list[str] = []
        self._events: list[str] = []
        self._rows: list[list[Any]] = []
        self._metrics = Metrics(self.begin_s)
        self._sources: list[Source] = []
        self._endings: list[Source] = []
        self._known: dict[str, Any] = {}
        self._notes: set[str] = set()
        self._bytes = dict.fromkeys(BYTE_KINDS, 0)
        self._sent: list[tuple[str, int]] = []
        self._step = OpenStep(alone=size == 1)
        self._said_late: bool | None = None
        self._lines.append(
            line(
                "begin",
                schema=SCHEMA,
                rank=rank,
                size=size,
                host=host,
                pid=os.getpid(),
                begin_s=self.begin_s,
                begin_unix_s=time.time() - (clock() - self.begin_s),
            )
        )
        self._due_s = clock() + _BLOCK_S
        self.flush()

    def data_waited(self, begin_s: float, end_s: float, samples: int | None) -> None:
        """Tell of a batch: how long training waited for it, and how many samples it has."""
        self._step.data_waited(end_s - begin_s, samples)
        if self.timeline:
            self.event("data", "wait for a batch", begin_s, end_s)

    def trained_on(self, samples: int) -> None:
        """Tell of a batch of which nobody knows how long training waited for it."""
        self._step.trained_on(samples)

    def backward(self, samples: int | None) -> None:
        """Tell of a backward pass.

        Args:
            samples: that the model was called with for it; None where no new call was seen.
        """
        self._step.passes += 1
        if samples:
            self._step.calls.append(samples)

    @property
    def knows_samples(self) -> bool:
        """Whether anybody has told how many samples steps have."""
        step = self._step
        return bool(step.samples is not None or step.calls or self._said_late is not None)

    def samples(self, count: float) -> None:
        """Say how many samples a step has; counts more than what a loader was seen to give.

        Scripts say so before the step ends or right after it: the first call tells which.
        """
        if self._said_late is None:
            self._said_late = self.steps > 0
        if not self._said_late:
            self._step.said_samples = (self._step.said_samples or 0.0) + count
        elif self._rows:
            self._rows[-1][-1] = float(count)

    def sent(self, kind: str, nbytes: int) -> None:
        """Count payload that went to other workers; `kind` is one of BYTE_KINDS."""
        if self.size > 1:
            # In any thread; they are added up when a block is written.
            self._sent.append((kind, nbytes))

    def gradients(self, *, ready_s: float, done_s: float, began_s: float, exposed_s: float) -> None:
        """Tell of gradients on their way: of a step, of a bucket or of a group.

        Args:
            ready_s: when this rank's were ready to go.
            done_s: when the results were there.
            began_s: when the first of them went.
            exposed_s: how long training waited for them.
        """
        self._step.moved.append((ready_s, done_s, began_s, exposed_s))
        if self.timeline:
            self.event("communication", "gradients", began_s, done_s)

    def optimizer(self, begin_s: float, end_s: float) -> None:
        """Tell of an update."""
        self._step.optimizer(end_s - begin_s)
        if self.timeline:
            self.event("optimizer", "update", begin_s, end_s)

    def optimizer_later(self, seconds: Later) -> None:
        """Tell of an update whose time a device will know."""
        self._step.optimizer_later(seconds)

    def step(self, end: Later | None = None) -> None:
        """Tell that a step has ended.

        Args:
            end: when it ends on its device, if that is later than now.

        Raises:
            StopLaunch: it was the last one, by the study's rule.
        """
        if self.stopped:
            raise ending.StopLaunch
        now_s = self._clock()
        self._ended(self._step.end(end or now_s), now_s)

    def several_steps(self, begin_s: float, samples: Sequence[float | None]) -> None:
        """Tell that steps have ended that ran in one piece: their time is shared out evenly.

        Args:
            begin_s: when the first of them began.
            samples: of each step, None where that is not known.

        Raises:
            StopLaunch: one of them was the last one, by the study's rule.
        """
        if self.stopped:
            raise ending.StopLaunch
        each_s = (self._clock() - begin_s) / len(samples)
        ends_s = [begin_s + each_s * (n + 1) for n in range(len(samples))]
        for row, end_s in zip(self._step.end_several(ends_s, samples), ends_s, strict=True):
            self._ended(row, end_s)

    def epoch(self, begin_s: float, end_s: float) -> None:
        """Tell of a pass over the training data."""
        self.epochs += 1
        self._lines.append(line("epoch", begin_s=begin_s, end_s=end_s))
        if self.timeline:
            self.event("epochs", f"epoch {self.epochs}", begin_s, end_s)

    def metric(
        self,
        name: str,
        value: float | Later,
        *,
        step: int | None = None,
        epoch: float | None = None,
    ) -> None:
        """Keep a figure that the script reports; one that a device will know is asked for later."""
        now_s = self._clock()
        self._metrics.add(name, value, self.steps if step is None else step, epoch, now_s)
        if now_s >= self._due_s:
            self.flush()

    def setup(self, **fields: Any) -> None:
        """Tell what is the same in all steps; what is told later wins."""
        changed = {n: v for n, v in fields.items() if n not in self._known or self._known[n] != v}
        if changed:
            self._known |= changed
            self._lines.append(line("setup", **changed))

    def assume(self, **fields: Any) -> None:
        """Tell what is the same in all steps, unless somebody who knows better has told."""
        self.setup(**{name: value for name, value in fields.items() if name not in self._known})

    def knows(self, name: str) -> bool:
        """Say whether somebody has told this by `setup`."""
        return name in self._known

    def tell(self, kind: str, **fields: Any) -> None:
        """Write a line of any kind."""
        self._lines.append(line(kind, **fields))

    def note(self, text: str) -> None:
        """Say what could not be measured, and why; once."""
        if text not in self._notes:
            self._notes.add(text)
            self._lines.append(line("note", text=text))

    def _says(self, beginning: str) -> bool:
        return any(note.startswith(beginning) for note in self._notes)

    def event(self, track: str, name: str, begin_s: float, end_s: float) -> None:
        """Keep an event for the timeline, if one was asked for."""
        if self.timeline:
            self._events.append(line("event", track=track, name=name, begin_s=begin_s, end_s=end_s))

    def add_source(self, source: Source) -> None:
        """Ask for one more line, `kind` included, whenever a block is written."""
        self._sources.append(source)

    def add_ending(self, source: Source) -> None:
        """Ask for fields of the last line."""
        self._endings.append(source)

    def flush(self, *, final: bool = False) -> None:
        """Write what has come together."""
        for source in self._sources:
            more = source()
            if more:
                self._lines.append(line(**more))
        with self._lock:
            self._due_s = self._clock() + _BLOCK_S
            lines, self._lines = self._lines, []
            while self._sent:
                kind, nbytes = self._sent.pop()
                self._bytes[kind] += nbytes
            # A script that names its samples after the step may still do so for the last one.
            held = 1 if self._said_late and not final else 0
            rows = take_settled(self._rows, len(self._rows) - held, final=final)
            if rows:
                lines.append(steps_line([self._step.figures(row) for row in rows]))
            lines += self._metrics.take_settled(final=final)
            self._writer.write(lines)
            if self._events_writer is not None:
                events, self._events = self._events, []
                self._events_writer.write(events)

    def close(self) -> None:
        """Write the rest and the last line; what is told afterwards is dropped."""
        if self._closed:
            return
        self._closed = True
        from resource import RUSAGE_SELF, getrusage

        # Linux counts in kB, macOS in bytes.
        unit = 1 if sys.platform == "darwin" else 1024
        fields: dict[str, Any] = {
            "end_s": self._clock(),
            "peak_memory_bytes": getrusage(RUSAGE_SELF).ru_maxrss * unit,
            "peak_gpu_bytes": None,
            "weights": None,
            "stopped": self.stopped,
        }
        if self.steps and self._step.data_s is None and not self._says(WAITING):
            self.note(f"{WAITING}: no DataLoader was seen.")
        for source in self._endings:
            try:
                fields |= source() or {}
            except Exception as error:
                # The rest of the recording is worth more than what one part had to add.
                self.note(f"The end was not recorded in full: {type(error).__name__}: {error}")
        self.flush(final=True)
        modules = [name for name in SLOW_IMPORTS if name in sys.modules]
        self._writer.write([line("end", bytes_sent=self._bytes, modules=modules, **fields)])
        self.abandon()
        if self._stopper is not None:
            self._stopper.close()
            self._stopper = None

    @property
    def closed(self) -> bool:
        """Whether nothing more is written."""
        return self._closed

    def abandon(self) -> None:
        """Let go of the files without another word, as a forked child must."""
        self._closed = True
        self._writer.close()
        if self._events_writer is not None:
            self._events_writer.close()

    def _ended(self, row: list[Any], end_s: float) -> None:
        self._rows.append(row)
        self.steps += 1
        if self._stopper is not None and self._stopper.step(self.steps, end_s, self.epochs):
            self._stop()
        if end_s >= self._due_s:
            self.flush()

    def _stop(self) -> None:
        assert self._stopper is not None
        self.stopped = True
        self._stopper.wait_for_others(self.steps)
        self.close()
        ending.end()
        raise ending.StopLaunch


_recorder: Recorder | None = None
_asked = False
_when_opened: list[Callable[[Recorder], None]] = []


def current() -> Recorder | None:
    """Return this worker's recorder, opened on the first call; None when nothing is recorded.

    Call it when the process trains, and not before: a launcher such as torchrun, or a helper that
    a worker has started, sees the same variables.
    """
    return _recorder if _asked else _open()


@contextmanager
def paused() -> Iterator[None]:
    """Record nothing meanwhile, between two steps: for measuring what recording costs."""
    global _recorder
    kept, _recorder = _recorder, None
    try:
        yield
    finally:
        _recorder = kept


def wrap(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Put a function in the place of `owner.name`; the original is its first argument."""
    original = getattr(owner, name)

    def put(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, method)

    return put


def when_opened(action: Callable[[Recorder], None]) -> None:
    """Call this with the recorder as soon as there is one."""
    if _recorder is not None:
        action(_recorder)
    else:
        _when_opened.append(action)


def forget() -> None:
    """Close, and look at the environment again on the next call (tests)."""
    global _recorder, _asked
    recorder, _recorder, _asked = _recorder, None, False
    _when_opened.clear()
    if recorder is not None:
        recorder.close()
        atexit.unregister(recorder.close)


def _open() -> Recorder | None:
    global _recorder, _asked
    _asked = True
    settings = read_settings(os.environ)
    if settings is None:
        return None
    try:
        _recorder = _make(settings)
    except FileExistsError:
        _say("another process records this rank already, so that this one is not recorded.")
    except (OSError, FarandoleError) as error:
        _say(f"nothing is recorded: {error}")
    if _recorder is not None:
        atexit.register(_recorder.close)
        while _when_opened:
            _when_opened.pop(0)(_recorder)
    return _recorder


def _make(settings: Settings) -> Recorder:
    from farandole.world.environment import read_world

    world = read_world(os.environ)
    rank, size = world.rank, world.size
    if world.source == "single":
        # torch.multiprocessing.spawn and its like name ranks by arguments, not by variables.
        distributed: Any = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank, size = distributed.get_rank(), distributed.get_world_size()
    stopper: Stopper | Contention | None = None
    far = False
    if settings.apart is not None:
        from farandole.recorder.contention import make_apart

        stopper = make_apart(settings.apart)
    elif settings.stop is not None:
        from farandole.recorder.ending import make_stopper

        stopper = make_stopper(settings.stop, settings.folder, world, rank=rank, size=size)
        far = stopper is None
    recorder = Recorder(settings, rank=rank, size=size, host=world.hostname, stopper=stopper)
    if far:
        recorder.note(
            "The launch was not ended early: its workers are on several hosts, and only those "
            "that Farandole starts agree on more than a number of steps (--steps)."
        )
    return recorder


def _say(text: str) -> None:
    sys.stderr.write(f"farandole: {text}\n")


def _in_forked_child() -> None:
    """A forked helper, such as a DataLoader's process, does not speak for its worker."""
    global _recorder
    if _recorder is not None:
        _recorder.abandon()
        atexit.unregister(_recorder.close)
        _recorder = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)

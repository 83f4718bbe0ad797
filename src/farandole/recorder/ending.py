"""How a study ends a launch early: the rule, agreeing on the last step, leaving the script.

Ranks of one host agree by a small file that all have in memory; on several hosts the launcher's
board takes its place. Each word has one writer. Rank 0 decides; with gradients averaged in every
step no rank is more than one step ahead of it, so that all see its word in time.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any

from farandole.errors import CollectiveError, UsageError

if TYPE_CHECKING:
    from farandole.world.environment import World

_REFUSAL = (
    "The study has ended this launch at an agreed step: it knows what it wanted to know, and the "
    "other workers have left. No more is exchanged between them; nothing needs to be done."
)
# torch.distributed by function and by method of a group: scripts may hold on to either.
_FUNCTIONS = (
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
    *("all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier"),
    *("batch_isend_irecv", "broadcast", "broadcast_object_list", "gather", "gather_object"),
    *("irecv", "isend", "monitored_barrier", "recv", "reduce", "reduce_scatter"),
    *("reduce_scatter_tensor", "scatter", "scatter_object_list", "send"),
)
_METHODS = (
    *("allgather", "_allgather_base", "allgather_coalesced", "allreduce", "allreduce_coalesced"),
    *("alltoall", "alltoall_base", "barrier", "broadcast", "gather", "monitored_barrier", "recv"),
    *("recv_anysource", "reduce", "reduce_scatter", "_reduce_scatter_base", "scatter", "send"),
)

_ended = False


class StopLaunch(SystemExit):
    """The study has seen enough: leave the script, with success.

    Not an Exception, so that `except Exception` around a training step does not take it for one.
    """

    def __init__(self) -> None:
        super().__init__(0)


class LaunchEndedError(CollectiveError):
    """A collective operation after the study has ended the launch: refused, not hung."""

    def __init__(self) -> None:
        super().__init__(_REFUSAL)


def ended() -> bool:
    """Say whether the study has ended this launch in this process."""
    return _ended


def refuse_if_ended() -> None:
    """Raise LaunchEndedError if the other workers have left for good."""
    if _ended:
        raise LaunchEndedError


def end() -> None:
    """Refuse all collectives from here on, and let this process end with success."""
    global _ended
    if _ended:
        return
    _ended = True
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None:
        _refuse(distributed)
    _silence_consequences()
    atexit.register(_leave)


def is_consequence(error: BaseException | None) -> bool:
    """Say whether an error came of the launch's end: a refusal, or what failed on the way out."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, StopLaunch | LaunchEndedError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _refuse(distributed: Any) -> None:
    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise LaunchEndedError

    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    for module in (distributed, c10d):
        for name in _FUNCTIONS:
            if hasattr(module, name):
                setattr(module, name, refused)
    group = getattr(distributed, "ProcessGroup", None)
    for kind in (group, *group.__subclasses__()) if group is not None else ():
        for name in _METHODS:
            if hasattr(kind, name):
                with contextlib.suppress(TypeError):  # a class that cannot be changed
                    setattr(kind, name, refused)


def _silence_consequences() -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not is_consequence(error):
            before(kind, error, trace)
            return
        # Nobody who looks later for what ended the script shall find a failure.
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            sys.__dict__.pop(name, None)

    sys.excepthook = hook


def _leave() -> None:
    """Run whatever else is to run at exit, then end with success whatever the script made of it."""
    atexit.unregister(_leave)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _finalise_mpi()
    os._exit(0)


def _finalise_mpi() -> None:
    """Take leave of MPI, which mpi4py does later than this process lives; mpirun minds."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


# A word per cache line.
_WORDS_PER_LINE = 8
_LINE_BYTES = 64
# How long the last step of a slow rank may take before the others leave without it.
_PATIENCE_S = 10.0
_GONE = 2**62
# What a word takes to all hosts by way of their agents, with time to spare; and what is sent last
# to get there.
_WAY_S, _FAREWELL_S = 1.0, 0.5
_MOST_AHEAD = 10_000


class Control:
    """The file: a word of rank 0's with the last step, then one of each rank with its step."""

    def __init__(self, path: str, *, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Growing to the size that it has already changes nothing.
            os.ftruncate(descriptor, _LINE_BYTES * (size + 1))
            self._memory = mmap.mmap(descriptor, _LINE_BYTES * (size + 1))
        finally:
            os.close(descriptor)
        self._words = memoryview(self._memory).cast("q")

    @property
    def last_step(self) -> int:
        """The step after which all end; 0 while there is none."""
        return self._words[0]

    def end_after(self, step: int) -> None:
        """Let this be the last step (rank 0)."""
        self._words[0] = step

    def publish(self, step: int) -> None:
        """Tell the others how far this rank is."""
        self._words[_WORDS_PER_LINE * (1 + self._rank)] = step

    def steps(self) -> list[int]:
        """Return how far each rank is that has not left."""
        words = [self._words[_WORDS_PER_LINE * (1 + rank)] for rank in range(self._size)]
        return [word for word in words if word != _GONE]

    def ahead(self, step_s: float) -> int:
        """Return 2: nobody misses a word in shared memory for longer than a step."""
        return 2

    def close(self) -> None:
        """Let go of the memory; nobody needs to wait for this rank any more."""
        self.publish(_GONE)
        self._words.release()
        self._memory.close()


class BoardControl:
    """The launcher's board: agents carry rank 0's word to the boards of the other hosts.

    How far the others are is not carried. Gradients are averaged in every step: nobody is more than
    one ahead of rank 0.
    """

    def __init__(self, path: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        from farandole.world.board import Board

        self._board = Board.open(path)
        self._sleep = sleep
        self._step = 0

    @property
    def last_step(self) -> int:
        """The step after which all end; 0 while there is none."""
        return self._board.last_recorded

    def end_after(self, step: int) -> None:
        """Let this be the last step (rank 0)."""
        self._board.last_recorded = step

    def publish(self, step: int) -> None:
        """Keep how far this rank is."""
        self._step = step

    def steps(self) -> list[int]:
        """Return how far this rank is."""
        return [self._step]

    def ahead(self, step_s: float) -> int:
        """Return as many steps as fit into the time that a word takes to all hosts."""
        return 2 + min(_MOST_AHEAD, math.ceil(_WAY_S / max(step_s, 1e-6)))

    def close(self) -> None:
        """Leave what was sent last the time to arrive, and let go of the board."""
        if self.last_step and self._step >= self.last_step:
            self._sleep(_FAREWELL_S)
        self._board.close()


Agreement = Control | BoardControl
"""Where ranks agree on the last step."""


class Stopper:
    """Ends this rank at the step that all agree on."""

    def __init__(
        self,
        rule: StopRule,
        control: Agreement,
        *,
        rank: int,
        size: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control, self._leads = control, rank == 0
        # A number of steps is the same on every rank, and needs no agreement.
        self._alone = rule.fixed or size == 1
        self._progress = Progress(rule)
        self._sleep, self._clock = sleep, clock
        self._end_s = 0.0
        """When the step before ended."""

    def step(self, number: int, end_s: float, epochs: int) -> bool:
        """Take note of the end of a step; return whether it was this rank's last."""
        control = self._control
        control.publish(number)
        if self._alone:
            return self._progress.step(end_s, epochs)
        last = control.last_step
        if not last and self._leads and self._progress.step(end_s, epochs):
            last = max(control.steps()) + control.ahead(end_s - self._end_s)
            control.end_after(last)
        self._end_s = end_s
        return 0 < last <= number

    def wait_for_others(self, number: int) -> None:
        """Stay until the others have ended this step too: some may still need what we sent."""
        deadline_s = self._clock() + _PATIENCE_S
        # A rank at 0 does not train, and will not be heard of.
        while any(0 < step < number for step in self._control.steps()):
            if self._clock() > deadline_s:
                return
            self._sleep(0.001)

    def close(self) -> None:
        """Let go of the file."""
        self._control.close()


def make_stopper(text: str, folder: str, world: World, *, rank: int, size: int) -> Stopper | None:
    """Return what ends a launch by a rule; None where its ranks cannot agree on a step.

    Workers of other hosts do not see this one's memory, and would wait for who has left. Where
    Farandole has started them, its board takes the word there; a number of steps needs none.

    `text` is the rule, as FARANDOLE_STOP has it; `world` need not know `rank` and `size`.

    Raises:
        UsageError: the text is no rule.
        OSError: the folder of the launch cannot be written to.
    """
    rule = StopRule.from_json(text)
    control: Agreement
    if rule.fixed or world.one_host:
        path = os.path.join(folder, "control")  # noqa: PTH118 (imports on use)
        control = Control(path, rank=rank, size=size)
    elif world.board is not None:
        control = BoardControl(world.board)
    else:
        return None
    return Stopper(rule, control, rank=rank, size=size)


# Student's t at 97.5 % with _BATCHES - 1 degrees of freedom.
_BATCHES = 8
_T = 2.365


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """What a study asks of one launch: FARANDOLE_STOP."""

    precision: float | None = None
    """Half-width of the 95 % interval of the median step time, as a share of it."""
    warmup_steps: int = 5
    """Steps that never count; more if the step time has not settled by then."""
    least_steps: int = 20
    fewest_steps: int = 5
    """What `enough_s` needs at least."""
    enough_s: float = 60.0
    """Seconds of steps after which a launch ends, precise or not."""
    steps: int | None = None
    """End after exactly so many steps."""
    epochs: int | None = None
    """End in the first steps after so many passes over the training data."""
    least_s: float | None = None
    """Of steps: end after `steps` of them, but not before so many seconds."""

    @property
    def fixed(self) -> bool:
        """Whether all ranks come to the same last step without a word."""
        return self.steps is not None and self.least_s is None

    @classmethod
    def from_json(cls, text: str) -> StopRule:
        """Read the variable; raise UsageError if it is not such a rule."""
        try:
            given = json.loads(text)
            unknown = set(given) - {field.name for field in fields(cls)}
            if unknown:
                raise ValueError(f"it has no {sorted(unknown)[0]!r}")
            defaults = {"warmup_steps", "least_steps", "fewest_steps", "enough_s"}
            for name, value in given.items():
                if value is not None and (isinstance(value, bool) or not value >= 0):
                    raise ValueError(f"{name} is {value!r}")
            return cls(**{n: v for n, v in given.items() if v is not None or n not in defaults})
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"FARANDOLE_STOP={text!r} is not a rule for ending a launch ({error}). Set a JSON "
                'object such as {"precision": 0.03}, or unset it.'
            ) from None


class Progress:
    """How far a launch is from having shown enough."""

    def __init__(self, rule: StopRule) -> None:
        self._rule = rule
        self._ends_s: list[float] = []
        # The first step has no beginning: it takes one more end than steps.
        self._look_at = rule.warmup_steps + rule.least_steps + 1

    def step(self, end_s: float, epochs: int) -> bool:
        """Take note of the end of a step; return whether it was enough."""
        rule, ends = self._rule, self._ends_s
        ends.append(end_s)
        if rule.steps is not None:
            return len(ends) >= rule.steps and end_s - ends[0] >= (rule.least_s or 0.0)
        if rule.epochs is not None:
            return epochs >= rule.epochs
        if rule.precision is None:
            return False
        timed = len(ends) - 1 - rule.warmup_steps
        if timed >= max(1, rule.fewest_steps) and (
            end_s - ends[rule.warmup_steps] >= rule.enough_s
        ):
            return True
        if len(ends) < self._look_at:
            return False
        self._look_at = 2 * len(ends)
        times = [after - before for before, after in pairwise(ends)]
        return known(times, rule)


def known(times_s: Sequence[float], rule: StopRule) -> bool:
    """Say whether the median of these step times is known to the rule's precision."""
    from statistics import median

    assert rule.precision is not None
    warmup = rule.warmup_steps
    while len(times_s) - warmup >= max(rule.least_steps, 2 * _BATCHES):
        counted = times_s[warmup:]
        middle, width = median(counted), half_width(counted)
        half = len(counted) // 2
        drift = abs(median(counted[:half]) - median(counted[half:]))
        # pyperf's rule: warm-up is over when the first half looks like the second.
        if drift <= max(rule.precision * middle, width):
            return width <= rule.precision * middle
        warmup = max(1, 2 * warmup)
    return False


def half_width(times_s: Sequence[float]) -> float:
    """Return the half-width of a 95 % interval of the median of dependent figures.

    The median moves as the share of figures above it does; that share's variance is estimated by
    batch means, and not below what a process with the same neighbour correlation would have.
    """
    from statistics import fmean, median, variance

    count = len(times_s)
    middle = median(times_s)
    above = [(value > middle) - (value < middle) for value in times_s]
    spread = fmean([sign * sign for sign in above])
    if spread == 0:
        return 0.0
    length = count // _BATCHES
    rest = count - length * _BATCHES
    batches = [fmean(above[at : at + length]) for at in range(rest, count, length)]
    by_batches = length * variance(batches)
    neighbours = fmean([a * b for a, b in pairwise(above)]) / spread
    # With few figures correlation comes out too small: by about (1 + 4 rho) / n for an AR(1).
    rho = min(0.95, max(0.0, neighbours + (1 + 4 * max(0.0, neighbours)) / count))
    by_neighbours = spread * (1 + rho) / (1 - rho)
    # A sign is worth two shares: hence the halves.
    reach = _T * math.sqrt(max(by_batches, by_neighbours) / count) / 2
    ordered = sorted(times_s)
    return (_quantile(ordered, 0.5 + reach) - _quantile(ordered, 0.5 - reach)) / 2


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = min(max(share, 0.0), 1.0) * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])

"""The supervisor: which worker failed first, and who is to be ended when.

Events go in, signals to send come out; nothing here starts, waits or reads a clock.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from farandole.world.board import Failure

if TYPE_CHECKING:
    # Imported on use: most runs are not elastic, and all pay for what is imported at the start.
    from farandole.launch.membership import (
        Break,
        Change,
        Decision,
        Dismiss,
        Form,
        Membership,
        Start,
    )
    from farandole.launch.placement import Slots

# Ended within 5 s: SIGTERM, 3 s to save and leave, SIGKILL, and time to be reaped.
GRACE_S = 3.0
# How long after it happened an end may be seen on a machine with more workers than cores.
_NOTICE_NS = 1_000_000_000
# Looks further apart than this mean that the launcher itself slept (Ctrl-Z): not silence.
_LONGEST_LOOK_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A worker's process ended."""

    rank: int
    code: int
    """Its exit code, or minus the signal that ended it."""
    now: float
    time_ns: int
    """Wall-clock time, to compare with failure notes."""
    failure: Failure | None = None
    lost: str = ""
    """How its host was lost, in one sentence; the code says nothing then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Time has passed, and somebody looked at the workers."""

    now: float
    time_ns: int
    stopped: frozenset[int] = frozenset()
    """Ranks of which a process is stopped (state T)."""
    exiting: frozenset[int] = frozenset()
    """Ranks whose script has ended, and which run their exit handlers."""
    active: frozenset[int] = frozenset()
    """Ranks that wrote output or made a step since the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The launcher was told to end."""

    signum: int
    now: float
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Time has passed in an elastic run."""

    now: float
    time_ns: int
    left: Mapping[int, int] = field(default_factory=dict)
    """Workers that have left a generation since the last time, with its number."""
    with_state: Collection[int] = ()
    """Workers that have the state of training."""
    hosts: Sequence[Slots] | None = None
    """The hosts there are, where that was asked for since the last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at the workers found."""

    stopped: frozenset[int]
    """Ranks of which a process is stopped."""
    exiting: frozenset[int]
    """Ranks whose script has ended, and which run their exit handlers."""
    steps: Mapping[int, int]
    """Steps made, by rank."""


class WorkerGroup(Protocol):
    """The workers of one launch, wherever they are.

    What it waits for is registered with a selector; the data of each entry is a function to call
    when it is ready.
    """

    def patience_s(self) -> float:
        """Say how long it may be left alone when nothing is ready."""

    def exits(self) -> list[Exited]:
        """Return the workers that have ended since the last call."""

    def look(self, *, at_states: bool) -> Look:
        """Look at the workers; at the states of their processes only if asked to."""

    def step(self, rank: int) -> int:
        """Return how many steps a worker has made."""

    def pids(self, ranks: Sequence[int]) -> list[int]:
        """Return the processes of those of these workers that run on this host."""

    def send(self, rank: int, signum: int) -> None:
        """Send a signal to a worker and what it has started."""

    def let_go(self, rank: int) -> None:
        """End what a worker that has ended left behind, and forget it (elastic runs)."""

    def ask_stop(self) -> None:
        """Ask all workers to stop by themselves, at a step that they agree on."""

    def end_leftovers(self, *, patient: bool) -> None:
        """End what ended workers have left behind, and take in their last words."""

    def close(self) -> None:
        """End and let go of everything, whatever happened before."""


Event = Exited | Looked | Interrupted | Waited


@dataclass(frozen=True, slots=True)
class Send:
    """Send a signal to the process group of a worker."""

    rank: int
    signum: int


if TYPE_CHECKING:
    Instruction = Send | Start | Form | Break | Change | Dismiss
    """What the launcher is to do; all but the first in elastic runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How the launch ended."""

    kind: Literal[
        "done", "failed", "lost", "stopped", "hung", "left", "missing", "interrupted", "given up"
    ]
    exit_code: int
    rank: int | None = None
    """Who failed first."""
    code: int | None = None
    """How that worker's process ended: exit code, or minus the signal."""
    failure: Failure | None = None
    witness: int | None = None
    """Who failed because that worker had left or did not come; code and failure are its own."""
    lost: str = ""
    """How the host of that worker was lost."""
    waited_s: float = 0.0
    """How long that worker's exit handlers were waited for."""
    last: bool = False
    """Whether all the others had ended by then."""
    reason: str = ""
    """Why an elastic run could not go on."""
    survived: tuple[Exited, ...] = ()
    """The failures after which an elastic run went on, in order."""


@dataclass(slots=True)
class _Worker:
    end: Exited | None = None
    told: set[int] = field(default_factory=set)
    """Signals that it was sent before it ended; an end by one of them says nothing."""
    stopped_s: float | None = None
    """For how long it has been seen stopped and silent; None when it was not at the last look."""
    exiting_s: float | None = None
    """For how long it has been seen silent in its exit handlers, with nobody else ending."""
    dismissed: bool = False
    """Whether an elastic run does not need it any more: its end says nothing."""


@dataclass(slots=True)
class Supervisor:
    """Decides about the workers of one launch."""

    size: int
    silence_timeout_s: float
    exit_timeout_s: float
    grace_s: float = GRACE_S
    membership: Membership | None = None
    """Decides who goes on after a failure; None: a failure ends all."""
    _reason: str = ""
    """Why an elastic run cannot go on."""
    borne: list[Exited] = field(default_factory=list)
    """Failures after which an elastic run goes on; the last of them may be its end yet."""
    _survived: int = 0
    """How many of these another generation was formed after."""
    _workers: list[_Worker] = field(default_factory=list)
    _trouble_ns: int | None = None
    """When the first signal was sent; failures noted later are its consequences."""
    _kill_at: float | None = None
    _stopped_rank: int | None = None
    _hung_rank: int | None = None
    _interrupt: int | None = None
    _last_look: float | None = None

    def __post_init__(self) -> None:
        self._workers = [_Worker() for _ in range(self.size)]

    @property
    def running(self) -> list[int]:
        """The ranks that have not ended."""
        return [rank for rank, worker in enumerate(self._workers) if worker.end is None]

    @property
    def ending(self) -> bool:
        """Say whether the launch is being ended."""
        return self._trouble_ns is not None

    @property
    def active(self) -> bool:
        """Whether there is anything to wait for: workers, or room for them in an elastic run."""
        elastic = self.membership is not None and not self.membership.over
        return bool(self.running) or (elastic and not self.ending)

    def handle(self, event: Event) -> list[Instruction]:
        """Take in what happened; return what to do, in order."""
        if isinstance(event, Exited):
            self._workers[event.rank].end = event
            for rank in self.running:
                # From now on it may be the last.
                self._workers[rank].exiting_s = None
            if self.membership is not None and not self.ending:
                return self._lost(self.membership, event)
            if event.code != 0 and not self.ending:
                return [*self._end_all(signal.SIGTERM, event.now, event.time_ns)]
            return []
        if isinstance(event, Interrupted):
            return [*self._interrupted(event)]
        if isinstance(event, Waited):
            return self._waited(event)
        return [*self._looked(event)]

    def _lost(self, membership: Membership, event: Exited) -> list[Instruction]:
        """Take in the end of a worker of an elastic run."""
        worker = self._workers[event.rank]
        failed = event.code != 0 and not worker.dismissed
        borne, decisions = membership.ended(event.rank, failed=failed, now_s=event.now)
        if failed and not borne:
            return [*self._end_all(signal.SIGTERM, event.now, event.time_ns)]
        if failed:
            self.borne.append(event)
        decisions += membership.decide(event.now)
        return self._follow(decisions, event.now, event.time_ns)

    def _waited(self, event: Waited) -> list[Instruction]:
        membership = self.membership
        if membership is None or self.ending:
            return []
        if event.hosts is not None:
            membership.found(event.hosts)
        for rank, number in event.left.items():
            membership.left(rank, number)
        for rank in event.with_state:
            membership.has_state(rank)
        return self._follow(membership.decide(event.now), event.now, event.time_ns)

    def _follow(self, decisions: Sequence[Decision], now: float, time_ns: int) -> list[Instruction]:
        """Turn what was decided about generations into instructions."""
        from farandole.launch.membership import Dismiss, Form, GiveUp, Kill, Start

        instructions: list[Instruction] = []
        for decision in decisions:
            if isinstance(decision, GiveUp):
                self._reason = decision.reason
                instructions += self._end_all(signal.SIGTERM, now, time_ns)
            elif isinstance(decision, Kill):
                instructions.append(Send(decision.worker, signal.SIGKILL))
            else:
                instructions.append(decision)
            if isinstance(decision, Start):
                self._workers.append(_Worker())
            elif isinstance(decision, Form):
                self._survived = len(self.borne)
            elif isinstance(decision, Dismiss):
                self._workers[decision.worker].dismissed = True
                if decision.at_once:
                    instructions.append(Send(decision.worker, signal.SIGTERM))
        return instructions

    def verdict(self) -> Verdict:
        """Say how the launch ended; call it when nobody runs any more."""
        verdict = self._verdict()
        if self.membership is None:
            return verdict
        survived = self.borne[: self._survived] if self._reason else self.borne
        return replace(verdict, reason=self._reason, survived=tuple(survived))

    def _verdict(self) -> Verdict:
        if self._interrupt is not None:
            return Verdict(kind="interrupted", exit_code=128 + self._interrupt)
        if self._stopped_rank is not None:
            return Verdict(kind="stopped", exit_code=1, rank=self._stopped_rank)
        ends = [end for worker in self._workers if (end := self._own_failure(worker))]
        if not ends and self._hung_rank is not None:
            others = [worker for worker in self._workers if worker.end and not worker.told]
            return Verdict(
                kind="hung",
                exit_code=1,
                rank=self._hung_rank,
                waited_s=self.exit_timeout_s,
                last=len(others) == self.size - 1 > 0,
            )
        if not ends and self._reason:
            return Verdict(kind="given up", exit_code=1)
        if not ends:
            return Verdict(kind="done", exit_code=0)
        first = _first(ends)
        if first.lost:
            return Verdict(kind="lost", exit_code=1, rank=first.rank, lost=first.lost)
        culprit = first.failure.culprit if first.failure is not None else None
        verdict = Verdict(
            kind="failed",
            exit_code=first.code if first.code > 0 else 128 - first.code,
            rank=first.rank,
            code=first.code,
            failure=first.failure,
        )
        if culprit is None or culprit in {end.rank for end in ends}:
            return verdict
        # Nothing is wrong with whom the first complains of, but for not being there.
        worker = self._workers[culprit]
        left = worker.end is not None and worker.end.code == 0 and not worker.told
        return replace(
            verdict, kind="left" if left else "missing", rank=culprit, witness=first.rank
        )

    def _own_failure(self, worker: _Worker) -> Exited | None:
        """Return the end of a worker if it failed by itself, not because it was told to end."""
        end = worker.end
        if end is None or end.code == 0 or worker.dismissed:
            return None
        borne = self.borne[: self._survived] if self._reason else self.borne
        if end in borne:
            return None
        if not worker.told:
            return end
        assert self._trouble_ns is not None
        if end.failure is not None:
            if end.failure.time_ns > self._trouble_ns:
                return None
            # It was on its way out when our signal cut that short: an uncaught exception's code.
            return replace(end, code=1) if -end.code in worker.told else end
        # It may have been killed by somebody else just before our signal came.
        return None if -end.code in worker.told else end

    def _interrupted(self, event: Interrupted) -> list[Send]:
        if self._interrupt is not None:
            # The second Ctrl-C: no more patience.
            return self._kill()
        self._interrupt = event.signum
        if self.ending:
            return self._kill()
        # Ctrl-C is what a script run alone would get, and may want to save on; of the others
        # Python ignores some.
        signum = signal.SIGINT if event.signum == signal.SIGINT else signal.SIGTERM
        return self._end_all(signum, event.now, event.time_ns)

    def _looked(self, event: Looked) -> list[Send]:
        since = 0.0 if self._last_look is None else event.now - self._last_look
        self._last_look = event.now
        if self.ending:
            late = self._kill_at is not None and event.now >= self._kill_at
            return self._kill() if late else []
        for rank in self.running:
            worker = self._workers[rank]
            if rank not in event.stopped or rank in event.active:
                worker.stopped_s = None
                continue
            if worker.stopped_s is None:
                worker.stopped_s = 0.0
                continue
            worker.stopped_s += min(since, _LONGEST_LOOK_S)
            if worker.stopped_s >= self.silence_timeout_s:
                if self.membership is not None:
                    # A failure of this worker, which the others may survive.
                    worker.stopped_s = None
                    return [Send(rank, signal.SIGKILL)]
                self._stopped_rank = rank
                # SIGTERM would wait until somebody lets a stopped process go on.
                worker.told.add(signal.SIGKILL)
                kill = [Send(rank, signal.SIGKILL)]
                return kill + self._end_all(signal.SIGTERM, event.now, event.time_ns)
        self._hung_rank = self._find_hung(event, since)
        if self._hung_rank is None:
            return []
        return self._end_all(signal.SIGTERM, event.now, event.time_ns)

    def _find_hung(self, event: Looked, since: float) -> int | None:
        """Return who has been in its exit handlers for too long, if nobody runs its script."""
        for rank in self.running:
            worker = self._workers[rank]
            if rank not in event.exiting or rank in event.active:
                worker.exiting_s = None
            elif worker.exiting_s is None:
                worker.exiting_s = 0.0
            else:
                worker.exiting_s += min(since, _LONGEST_LOOK_S)
        waits = {rank: self._workers[rank].exiting_s for rank in self.running}
        if any(wait is None or wait < self.exit_timeout_s for wait in waits.values()):
            return None
        # The others may wait for one that is stopped.
        return max(
            waits, key=lambda rank: (rank in event.stopped, waits[rank] or 0.0, -rank), default=None
        )

    def _end_all(self, signum: int, now: float, time_ns: int) -> list[Send]:
        self._trouble_ns = time_ns
        self._kill_at = now + self.grace_s
        sends = [Send(rank, signum) for rank in self.running if not self._workers[rank].told]
        for send in sends:
            self._workers[send.rank].told.add(signum)
        return sends

    def _kill(self) -> list[Send]:
        self._kill_at = None
        for rank in self.running:
            self._workers[rank].told.add(signal.SIGKILL)
        return [Send(rank, signal.SIGKILL) for rank in self.running]


def _first(ends: list[Exited]) -> Exited:
    """Choose who failed first: never a declared consequence, then by time."""
    first = min(ends, key=_blame)
    by_rank = {end.rank: end for end in ends}
    while first.failure is not None and first.failure.culprit in by_rank:
        # Whoever the first complains of failed too. Two that complain of each other: by time.
        first = by_rank.pop(first.failure.culprit)
    if first.failure is None:
        return first
    # A worker that was killed leaves no note, and its end is seen a little after it happened. A
    # peer may have noted its broken connection in between; but that peer is still running then.
    unnoted = [
        end
        for end in ends
        if end.failure is None
        and end.time_ns < first.time_ns
        and end.time_ns - first.failure.time_ns < _NOTICE_NS
    ]
    return min(unnoted, key=_blame, default=first)


def _blame(end: Exited) -> tuple[bool, int]:
    if end.failure is None:
        return (False, end.time_ns)
    return (end.failure.secondary, end.failure.time_ns)

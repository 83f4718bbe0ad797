"""Who is in the next generation of an elastic run: when to form it, and whom to start or let go.

Events go in, instructions come out; nothing here starts, waits or reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from farandole.format import plural
from farandole.launch.discovery import Hosts
from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.placement import Slots
from farandole.world.generations import Assignment

# A worker that fails within this time of joining has failed at once: its replacement would, too.
_AT_ONCE_S = 5.0
# What a worker that failed at once is followed by: pauses that double.
_FIRST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a worker."""

    worker: int
    host: str
    assignment: Assignment
    """The generation that it will be in if nothing else happens: its rank, and the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Let workers begin a generation."""

    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """Let all hear that their generation has lost a worker."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Let workers know that it is time for another generation, at their next commit."""

    added: bool
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismiss:
    """Let a worker know that it is not needed any more."""

    worker: int
    at_once: bool
    """Whether it does nothing that it could hear of it in, and is to be ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """End a worker that does not come to the next generation: a failure of its own."""

    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """End the run: it cannot go on."""

    reason: str


Decision = Start | Form | Break | Change | Dismiss | Kill | GiveUp


@dataclass(slots=True)
class _Worker:
    number: int
    host: str
    slot: int
    left: int | None = None
    """The generation that it has left last; 0: it waits for its first. None: it has not come."""
    joined: int | None = None
    """The first generation that it was in."""
    joined_s: float = math.inf
    has_state: bool = False
    """Whether it said so."""
    wanted: bool = True

    def key(self) -> tuple[bool, float, int]:
        """Sort those first that have state, the longest running before the others."""
        joined = math.inf if self.joined is None else self.joined
        return (not self.has_state and joined > 1, joined, self.number)


@dataclass(slots=True, kw_only=True)
class Membership:
    """Decides about the generations of one run."""

    options: ElasticOptions
    num_workers: int
    """How many training starts with."""
    hosts: Hosts
    discovers: bool
    """Whether other hosts may be found later."""
    chance: Callable[[], float]
    """Numbers from 0 to 1 (see Hosts.excluding)."""
    max_started: int
    """How many workers may be started in the whole run."""
    restarted: bool = False
    """Whether workers may have found states of an earlier round (--max-restarts)."""
    one_machine: bool = True
    """Whether all hosts are names of one machine."""
    start_timeout_s: float = 0.0
    """How long workers that run get to come, where that is longer than `options.timeout_s`."""
    generation: int = 0
    _workers: dict[int, _Worker] = field(default_factory=dict)
    """Those that run."""
    _ranks: dict[int, int] = field(default_factory=dict)
    """The last rank of each worker, of those that have ended, too."""
    _members: tuple[int, ...] = ()
    """Who was put into the latest generation, by rank."""
    _started: int = 0
    _state_noted: bool = False
    """Whether any worker has said that it has the state of training: then all that have it do."""
    _broken: bool = False
    _finishing: bool = False
    _over: bool = False
    _waits_since_s: float | None = None
    _short_since_s: float | None = None
    """Since when there has not been room for enough workers."""
    _told: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    """The workers added and removed that the workers of this generation know of."""
    _pauses: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    """For a slot how often in a row a worker failed at once, and until when it stays empty."""

    @property
    def started(self) -> int:
        """The number of workers that have been started."""
        return self._started

    @property
    def members(self) -> tuple[int, ...]:
        """The workers of the latest generation, by rank."""
        return self._members

    @property
    def over(self) -> bool:
        """Whether no more workers are started: training has come to its end, or cannot go on."""
        return self._over or self._finishing

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for a generation, so that each moment counts."""
        return self._waits_since_s is not None

    def rank_of(self, worker: int) -> int:
        """Return the rank that a worker had last, or was started for."""
        return self._ranks.get(worker, worker)

    def found(self, hosts: Sequence[Slots]) -> None:
        """Take in which hosts there are now."""
        self.hosts = self.hosts.found(hosts)

    def left(self, worker: int, number: int) -> None:
        """Hear that a worker has left a generation, and waits for the next one."""
        if worker in self._workers:
            self._workers[worker].left = number

    def has_state(self, worker: int) -> None:
        """Hear that a worker has the state of training."""
        if worker in self._workers:
            self._workers[worker].has_state = self._state_noted = True

    def _can_hand_on(self, worker: _Worker) -> bool:
        """Say whether a worker of the latest generation has the state of training.

        Those that training began with may go on from its begin, but for after a restart.
        """
        began_with = worker.joined == 1 or not self._state_noted
        # Where nobody was lost, nobody lacks anything that another had.
        return worker.has_state or not self._broken or (began_with and not self.restarted)

    def ended(self, worker: int, *, failed: bool, now_s: float) -> tuple[bool, list[Decision]]:
        """Hear that a worker has ended; return whether the run bears that, and what to do."""
        gone = self._workers.pop(worker, None)
        if gone is None or self._over:
            return False, []
        if self._finishing:
            return not failed, []
        member = worker in self._members
        if not failed and gone.wanted and (member or self.generation == 0):
            # Its script has come to its end: so will the others'.
            self._finishing = True
            return True, [
                Dismiss(worker=each.number, at_once=each.left is None)
                for each in self._workers.values()
                if each.number not in self._members and self.generation
            ]
        if gone.wanted:
            self._exclude(gone, now_s)
        if not member or self._broken:
            return True, []
        self._broken = True
        return True, [Break(number=self.generation)]

    def decide(self, now_s: float) -> list[Decision]:
        """Say what is to be done now; call it after events, and when time has passed."""
        if self._over:
            return []
        if self._finishing:
            return self._finish()
        decisions = self._place(now_s)
        decisions += self._form(now_s)
        if any(isinstance(each, GiveUp) for each in decisions):
            self._over = True
        return decisions

    def _exclude(self, gone: _Worker, now_s: float) -> None:
        """Draw the consequences of a failure for its slot and host."""
        slot = (gone.host, gone.slot)
        at_once = now_s - gone.joined_s < _AT_ONCE_S or gone.joined is None
        times, _ = self._pauses.get(slot, (0, 0.0))
        times = times + 1 if at_once else 1
        excludes = self.options.blacklist == "host" or times > 1
        if excludes:
            times = 0
            self.hosts = self.hosts.excluding(
                gone.host,
                now_s=now_s,
                cooldown_range_s=self.options.cooldown_range_s,
                chance=self.chance(),
            )
        pause_s = _FIRST_PAUSE_S if at_once and not excludes else 0.0
        self._pauses[slot] = times, now_s + pause_s

    def _place(self, now_s: float) -> list[Decision]:
        """Compare the slots that there are with the workers that run."""
        decisions: list[Decision] = []
        usable = {host.name for host in self.hosts.usable(now_s)}
        counts = {host.name: host.count for host in self.hosts.present}
        room = self.options.max_np
        for worker in sorted(self._workers.values(), key=_Worker.key):
            # A worker whose slot failed may run beside healthy ones; Horovod ends those, too.
            stays = worker.host in usable or self.options.blacklist == "slot"
            fits = stays and worker.slot < counts.get(worker.host, 0) and room > 0
            room -= fits
            if worker.number in self._members:
                # Its host may be back before anybody has left this generation.
                worker.wanted = fits
            elif worker.wanted and not fits:
                worker.wanted = False
                decisions.append(Dismiss(worker=worker.number, at_once=worker.left is None))
        taken = {(worker.host, worker.slot) for worker in self._workers.values()}
        free = [
            (host.name, slot)
            for host in self.hosts.usable(now_s)
            for slot in range(host.count)
            if (host.name, slot) not in taken
        ][: max(0, room)]
        if self.generation == 0 and len(self._wanted()) + len(free) < self.num_workers:
            # Training starts with -np workers: nothing is begun before there is room for them.
            free = []
        ready = [slot for slot in free if self._pauses.get(slot, (0, 0.0))[1] <= now_s]
        new = []
        for host, slot in ready[: max(0, self.max_started - self._started)]:
            worker = _Worker(number=self._started, host=host, slot=slot)
            self._started += 1
            self._workers[worker.number] = worker
            new.append(worker)
        if new:
            expected = self._assignment(self._wanted(), self.generation + 1)
            for worker in new:
                self._ranks[worker.number] = expected.workers.index(worker.number)
                decisions.append(Start(worker=worker.number, host=worker.host, assignment=expected))
        return decisions

    def _wanted(self) -> list[_Worker]:
        return [worker for worker in self._workers.values() if worker.wanted]

    def _form(self, now_s: float) -> list[Decision]:
        wanted = self._wanted()
        members = [worker for worker in wanted if worker.number in self._members]
        survivors = [worker for worker in members if self._can_hand_on(worker)]
        if self.generation and not survivors:
            # Those that are to leave hand their state on before.
            survivors = self._leaving()
            wanted, members = [*wanted, *survivors], [*members, *survivors]
            if not survivors:
                return [GiveUp(reason="No worker is left that has the state of training.")]
        present = [worker for worker in wanted if worker.left == self._left_by(worker)]
        away = any(
            self._workers[number].left == self.generation
            for number in self._members
            if number in self._workers
        )
        if self._started and not self._workers and self._all_excluded(now_s):
            # More likely the script's fault than that of all hosts: no others are waited for.
            return [GiveUp(reason=self._too_few(0, self.num_workers, waited=False))]
        needed = self.generation == 0 or self._broken or away
        if not needed:
            self._waits_since_s = self._short_since_s = None
            return self._changes()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        least = self.options.min_np if self.generation else self.num_workers
        if len(wanted) >= least:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = now_s
        waits_for = members
        if self.options.blacklist == "host" or self.generation == 0:
            waits_for = wanted
        late = [worker for worker in waits_for if worker not in present]
        if not late and len(present) >= least:
            return self._begin(present, now_s)
        short_s = 0.0 if self._short_since_s is None else now_s - self._short_since_s
        if short_s >= self.options.timeout_s:
            room = len(wanted) or self.hosts.num_slots(now_s)
            return [GiveUp(reason=self._too_few(room, least))]
        # A replacement may import for longer than hosts are waited for.
        patience_s = max(self.options.timeout_s, self.start_timeout_s)
        if now_s - self._waits_since_s >= patience_s:
            if len(present) >= least and any(worker in survivors for worker in present):
                return [Kill(worker=worker.number) for worker in late]
            return [
                GiveUp(
                    reason=f"After {patience_s:g} s {len(present)} of "
                    f"{plural(len(wanted), 'worker')} had called hvd.init() or come back from "
                    f"training, but {self._least(least)} are needed. Give slow ones more time: "
                    "--start-timeout or --elastic-timeout SECONDS."
                )
            ]
        if len(wanted) < least and self._hopeless(now_s, len(wanted), least):
            return [GiveUp(reason=self._too_few(len(wanted), least, waited=False))]
        return []

    def _all_excluded(self, now_s: float) -> bool:
        """Say whether all hosts are excluded for good."""
        hosts = self.hosts
        return not hosts.usable(now_s) and hosts.next_return_s(now_s) is None

    def _leaving(self) -> list[_Worker]:
        """Return the workers with state whose hosts were removed, not excluded for good."""
        members = [self._workers[each] for each in self._members if each in self._workers]
        excluded = self.hosts.excluded
        return [
            worker
            for worker in members
            if self._can_hand_on(worker)
            and (worker.host not in excluded or excluded[worker.host].until_s < math.inf)
        ]

    def _left_by(self, worker: _Worker) -> int:
        """Return what a worker that waits for the next generation has left."""
        return self.generation if worker.number in self._members else worker.left or 0

    def _hopeless(self, now_s: float, running: int, least: int) -> bool:
        """Say whether there will never be room for enough workers."""
        if self._started >= self.max_started:
            return True
        if self.discovers or self.hosts.next_return_s(now_s) is not None:
            return False
        busy = {(worker.host, worker.slot) for worker in self._workers.values()}
        free = [
            (host.name, slot)
            for host in self.hosts.usable(now_s)
            for slot in range(host.count)
            if (host.name, slot) not in busy
        ]
        return running + len(free) < least

    def _least(self, least: int) -> str:
        return f"-np {least}" if self.generation == 0 else f"--min-np {least}"

    def _too_few(self, number: int, least: int, *, waited: bool = True) -> str:
        what = self._least(least)
        excluded = ", ".join(sorted(self.hosts.excluded))
        why = f" Excluded after failures: {excluded}." if excluded else ""
        if waited:
            return (
                f"After {self.options.timeout_s:g} s (--elastic-timeout) there was room for "
                f"{plural(number, 'worker')}, but {what} are needed.{why}"
            )
        return f"There is room for {plural(number, 'worker')} only, but {what} are needed.{why}"

    def _begin(self, present: list[_Worker], now_s: float) -> list[Decision]:
        """Form a generation of these workers."""
        limit = self.options.reset_limit
        if limit is not None and self.generation > limit:
            return [
                GiveUp(
                    reason=f"The number of resets would exceed the limit: {limit} (--reset-limit)."
                )
            ]
        before = self._members
        self.generation += 1
        assignment = self._assignment(present, self.generation)
        self._members = assignment.workers
        self._ranks |= {worker: rank for rank, worker in enumerate(assignment.workers)}
        for worker in present:
            if worker.joined is None:
                worker.joined, worker.joined_s = self.generation, now_s
        self._broken, self._waits_since_s, self._short_since_s = False, None, None
        self._told = (frozenset(), frozenset())
        dismissed = [
            Dismiss(worker=worker, at_once=False)
            for worker in before
            if worker in self._workers and worker not in self._members
        ]
        return [Form(assignment=assignment), *dismissed]

    def _assignment(self, workers: Sequence[_Worker], number: int) -> Assignment:
        """Number ranks host by host; rank 0 is the worker that has been there longest."""
        by_host: dict[str, list[int]] = {}
        for worker in sorted(workers, key=_Worker.key):
            by_host.setdefault(worker.host, []).append(worker.number)
        return Assignment(
            number=number,
            workers=tuple(worker for each in by_host.values() for worker in each),
            hosts=tuple((host, len(each)) for host, each in by_host.items()),
            one_machine=self.one_machine,
        )

    def _changes(self) -> list[Decision]:
        """Say what workers are to know of, who train meanwhile."""
        wanted = self._wanted()
        new = [worker for worker in wanted if worker.number not in self._members]
        if self.options.blacklist == "slot":
            # They go on training while new ones import what they need.
            new = [worker for worker in new if worker.left is not None]
        added = frozenset(worker.number for worker in new)
        kept = {worker.number for worker in wanted}
        if not kept & set(self._members) and not added:
            return []  # nobody could take over
        removed = frozenset(
            worker for worker in self._members if worker in self._workers and worker not in kept
        )
        before = self._told
        self._told = (before[0] | added, before[1] | removed)
        if self._told == before:
            return []
        return [
            Change(added=bool(self._told[0]), removed=bool(self._told[1])),
        ]

    def _finish(self) -> list[Decision]:
        """Say what is to be done when a worker has come to the end of its script."""
        back = [
            worker.number
            for worker in self._workers.values()
            if worker.number in self._members and worker.left == self.generation
        ]
        if not back:
            return []
        self._over = True
        ended = [worker for worker in self._members if worker not in self._workers]
        first, other = self.rank_of(ended[0]), self.rank_of(back[0])
        return [
            GiveUp(
                reason=f"Rank {first} came to the end of its script while rank {other} was still "
                "training. All ranks make the same steps."
            )
        ]

"""An elastic run: hosts looked for, workers started, generations put on the board.

`launch.membership` decides all of it; this is what its decisions are done with.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from farandole.errors import UsageError
from farandole.format import plural
from farandole.launch.discovery import ASK_EVERY_S, DiscoveryScript, Hosts
from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.membership import Break, Change, Dismiss, Form, Membership, Start
from farandole.launch.message import loss
from farandole.launch.placement import Slots
from farandole.launch.supervisor import Exited, Verdict, Waited
from farandole.world.board import MAX_STARTED
from farandole.world.generations import Assignment

# How often to look for workers that have come or left: while somebody waits for them, and else.
_BUSY_S = 0.005
_IDLE_S = 0.05


def known_hosts(options: ElasticOptions) -> tuple[str, ...]:
    """Return the names of the hosts that a run may use by what is known now.

    Raises:
        UsageError: Discovery does not work.
    """
    if options.discovery_command is None:
        return tuple(host.name for host in options.hosts)
    script = DiscoveryScript(options.discovery_command, slots_per_host=options.slots_per_host)
    with contextlib.closing(script):
        return tuple(host.name for host in _first_answer(script))


def _first_answer(script: DiscoveryScript) -> tuple[Slots, ...]:
    """Ask for hosts, and wait: what does not work at the start is an error of the user's."""
    script.ask(time.monotonic())
    while (answer := script.answer(time.monotonic())) is None:
        time.sleep(_BUSY_S)
    if answer.hosts is None:
        raise UsageError(answer.error)
    return answer.hosts


class Boards(Protocol):
    """The board that all workers see, or one for those of each host (see world.board.Board)."""

    def form(self, number: int, assignment: bytes) -> None:
        """Put up who is in a generation."""

    def break_generation(self, number: int) -> None:
        """Note that a generation has lost a worker."""

    def note_change(self, time_ns: int, *, added: bool, removed: bool) -> None:
        """Note what has changed on the hosts."""

    def dismiss(self, worker: int) -> None:
        """Tell a worker that there is no place for it."""

    def left(self, worker: int) -> int | None:
        """Read which generation a worker has left last."""

    def has_state(self, worker: int) -> bool:
        """Say whether a worker has the state of training."""


class ElasticRun:
    """What happens in an elastic run beside the workers' ends, and what is done about it."""

    def __init__(
        self,
        options: ElasticOptions,
        board: Boards,
        *,
        num_workers: int,
        start_timeout_s: float,
        here: str,
        start: Callable[[Start], None],
        formed: Callable[[Collection[int]], None] | None = None,
        remark: Callable[[str], None],
        here_only: bool = True,
        restarted: bool = False,
    ) -> None:
        """Begin.

        Args:
            options: What the run may do.
            board: Where generations are put up.
            num_workers: How many workers training starts with.
            start_timeout_s: How long they get to call hvd.init().
            here: The name of this host, where none was named.
            start: Starts a worker.
            formed: Hears of each generation which workers run.
            remark: Shows a sentence.
            here_only: Whether all hosts have to be names of this one.
            restarted: Whether all workers have been started before.

        Raises:
            UsageError: Discovery does not work, or a host is not this one.
        """
        self._board, self._start, self._remark = board, start, remark
        self._formed = formed
        self._here_only = here_only
        self._script = None
        if options.discovery_command is not None:
            self._script = DiscoveryScript(
                options.discovery_command, slots_per_host=options.slots_per_host
            )
        self._ask_at = 0.0
        self._complaint = ""
        hosts = options.hosts or (Slots(name=here, count=num_workers),)
        if self._script is not None:
            try:
                hosts = _first_answer(self._script)
            except BaseException:
                self._script.close()
                raise
            self._ask_at = time.monotonic() + ASK_EVERY_S
        self._check(hosts)
        self.membership = Membership(
            options=options,
            num_workers=num_workers,
            hosts=Hosts().found(hosts),
            discovers=self._script is not None,
            chance=random.random,
            max_started=MAX_STARTED,
            one_machine=here_only,
            restarted=restarted,
            start_timeout_s=start_timeout_s,
        )
        self._left: dict[int, int] = {}
        self._with_state: set[int] = set()
        self.running: list[int] = []
        """The workers that have been started and have not ended."""
        self._said_waiting = False

    def waited(self) -> Waited:
        """Return what has happened since the last time."""
        hosts = None
        now = time.monotonic()
        if self._script is not None:
            hosts = self._discovered(self._script, now)
        left = {}
        for worker in self.running:
            number = self._board.left(worker)
            if number is not None and self._left.get(worker) != number:
                self._left[worker] = left[worker] = number
        with_state = [
            worker
            for worker in self.running
            if worker not in self._with_state and self._board.has_state(worker)
        ]
        self._with_state.update(with_state)
        self._say_what_is_missing()
        return Waited(
            now=now, time_ns=time.time_ns(), left=left, with_state=with_state, hosts=hosts
        )

    def patience_s(self) -> float:
        """Say how long to wait at most before looking again."""
        return _BUSY_S if self.membership.waiting else _IDLE_S

    def do(self, decision: Start | Form | Break | Change | Dismiss) -> Assignment | None:
        """Do what was decided; return the generation that was formed, if one was."""
        if isinstance(decision, Start):
            self.running.append(decision.worker)
            self._start(decision)
        elif isinstance(decision, Form):
            assignment = decision.assignment
            self._board.form(assignment.number, assignment.encode())
            if self._formed is not None:
                self._formed(self.running)
            if assignment.number > 1:
                hosts = ", ".join(f"{name}:{count}" for name, count in assignment.hosts)
                self._remark(
                    f"generation {assignment.number}: {plural(len(assignment.workers), 'worker')} "
                    f"({hosts})"
                )
            return assignment
        elif isinstance(decision, Break):
            self._board.break_generation(decision.number)
        elif isinstance(decision, Change):
            self._board.note_change(time.time_ns(), added=decision.added, removed=decision.removed)
        else:
            self._board.dismiss(decision.worker)
        return None

    def ended(self, worker: int) -> None:
        """Hear that a worker has ended."""
        if worker in self.running:
            self.running.remove(worker)

    def say_lost(self, end: Exited) -> None:
        """Say how a worker was lost."""
        rank = self.membership.rank_of(end.rank)
        self._remark(f"{loss(replace(end, rank=rank))}.")

    def by_rank(self, verdict: Verdict) -> Verdict:
        """Name ranks in place of workers."""
        rank_of = self.membership.rank_of
        return replace(
            verdict,
            rank=None if verdict.rank is None else rank_of(verdict.rank),
            witness=None if verdict.witness is None else rank_of(verdict.witness),
            survived=tuple(replace(each, rank=rank_of(each.rank)) for each in verdict.survived),
        )

    def close(self) -> None:
        """End a discovery script that is running."""
        if self._script is not None:
            self._script.close()

    def _say_what_is_missing(self) -> None:
        membership = self.membership
        room = membership.hosts.num_slots(time.monotonic())
        if membership.started or self._said_waiting or room >= membership.num_workers:
            return
        self._said_waiting = True
        found = ", ".join(f"{host.name}:{host.count}" for host in membership.hosts.present)
        self._remark(
            f"waiting for room for {plural(membership.num_workers, 'worker')} (-np): "
            f"{f'found {found}' if found else 'there are no hosts'} so far. It ends after "
            f"{membership.options.timeout_s:g} s (--elastic-timeout)."
        )

    def _check(self, hosts: Sequence[Slots]) -> None:
        from farandole.launch.starters import is_here

        away = [host.name for host in hosts if self._here_only and not is_here(host.name)]
        if away:
            raise UsageError(
                f"{away[0]} is another host, and this run has this one only (localhost, 127.0.0.1 "
                "and its own name count as hosts). Start it by `farandole run --launcher ssh`."
            )

    def _discovered(self, script: DiscoveryScript, now: float) -> tuple[Slots, ...] | None:
        answer = script.answer(now)
        if answer is None:
            if now >= self._ask_at and not script.asking:
                self._ask_at = now + ASK_EVERY_S
                script.ask(now)
            return None
        hosts, complaint = answer.hosts, answer.error
        if hosts is not None:
            try:
                self._check(hosts)
            except UsageError as error:
                hosts, complaint = None, str(error)
        if complaint and complaint != self._complaint:
            self._remark(f"{complaint} The hosts stay as they were.")
        self._complaint = complaint
        return hosts

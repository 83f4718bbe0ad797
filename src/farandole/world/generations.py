"""Generations of an elastic run: sets of workers that train together, one after the other.

The launcher forms them on its board. A worker has a number there, that of its process, counted over
the whole run; its rank is another in each generation.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from farandole.errors import NotNeededError, PeerDiedError, StartError
from farandole.world.board import Board, Failure
from farandole.world.environment import World, place_among
from farandole.world.rendezvous import wait_until

# What the launcher takes at most to note that a worker has ended.
_NOTICE_S = 5.0
WORKER = "FARANDOLE_WORKER"
"""The variable with a worker's number; whoever has it is a worker of an elastic run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Who is in a generation."""

    number: int
    """Generations are counted from 1."""
    workers: tuple[int, ...]
    """The worker that each rank is."""
    hosts: tuple[tuple[str, int], ...]
    """The hosts with how many ranks each has; ranks are numbered host by host."""
    one_machine: bool = True
    """Whether all hosts are names of one machine."""

    def encode(self) -> bytes:
        """Put it into bytes for the board."""
        return json.dumps([self.workers, self.hosts, self.one_machine]).encode()

    @classmethod
    def decode(cls, number: int, text: bytes) -> Assignment:
        """Read what `encode` has written."""
        workers, hosts, one_machine = json.loads(text)
        return cls(
            number=number,
            workers=tuple(workers),
            hosts=tuple((name, count) for name, count in hosts),
            one_machine=one_machine,
        )

    def world(self, worker: int, before: World) -> World:
        """Return a worker's place, given what else is known of it."""
        rank = self.workers.index(worker)
        place = place_among(rank, [count for _, count in self.hosts])
        names = tuple(name for name, count in self.hosts for _ in range(count))
        return replace(
            before,
            rank=rank,
            size=len(self.workers),
            local_rank=place.local_rank,
            local_size=place.local_size,
            cross_rank=place.cross_rank,
            cross_size=place.cross_size,
            hostname=names[rank],
            hosts=tuple(name for name, _ in self.hosts),
            rank_hosts=names if len(self.hosts) > 1 else (),
            generation=self.number,
            one_machine=self.one_machine,
        )


def first_round(generation: int) -> int:
    """Return the number of a generation's first round of posts."""
    return generation << 24


class GenerationBoard:
    """The launcher's board as one generation sees it: by its ranks, with posts of its own."""

    def __init__(self, board: Board, assignment: Assignment) -> None:
        self._board, self._workers = board, assignment.workers
        self.number = assignment.number
        self.size = len(assignment.workers)
        # Rounds of different generations must not be taken for each other.
        self._first_round = first_round(assignment.number)

    def check(self) -> None:
        """Raise PeerDiedError if this generation has lost a worker, or a later one is there."""
        board = self._board
        if board.broken < self.number and board.generation == self.number:
            return
        lost = [
            rank for rank, worker in enumerate(self._workers) if board.exit_code(worker) is not None
        ]
        if not lost:
            raise PeerDiedError(f"Generation {self.number} of this elastic run is over.")
        code = self.exit_code(lost[0]) or 0
        how = f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
        raise PeerDiedError(f"Rank {lost[0]} {how}.", culprit=lost[0])

    def post(self, rank: int, round: int, payload: bytes) -> None:
        """Put up this rank's payload of a round (see Board.post)."""
        self._board.post(self._workers[rank], self._first_round + round, payload)

    def posted(self, rank: int, round: int) -> bytes | None:
        """Read a rank's payload of a round; None when it has not been posted."""
        return self._board.posted(self._workers[rank], self._first_round + round)

    def rounds(self, rank: int) -> int:
        """Count the rounds that a rank has posted in this generation."""
        return max(0, self._board.rounds(self._workers[rank]) - self._first_round)

    def pid(self, rank: int) -> int | None:
        """Read a rank's process id; None when nobody noted it."""
        return self._board.pid(self._workers[rank])

    def exit_code(self, rank: int) -> int | None:
        """Read how a rank ended (minus the signal where one ended it); None while it runs."""
        return self._board.exit_code(self._workers[rank])

    def failure(self, rank: int) -> Failure | None:
        """Read a rank's failure note; None when it left none."""
        return self._board.failure(self._workers[rank])

    def note_step(self, rank: int, step: int) -> None:
        """Write how many steps this rank has made."""
        self._board.note_step(self._workers[rank], step)

    def ask_stop(self) -> None:
        """Ask the workers to stop at a step that they agree on."""
        self._board.ask_stop()

    @property
    def stop_asked(self) -> bool:
        """Say whether the workers are to stop at a common step."""
        return self._board.stop_asked

    @property
    def last_step(self) -> int:
        """The step of this generation at which all workers stop; 0 while there is none."""
        number, step = divmod(self._board.last_step, 1 << 40)
        return step if number == self.number else 0

    @last_step.setter
    def last_step(self, step: int) -> None:
        self._board.last_step = (self.number << 40) + step


class Membership:
    """A worker's part in the generations of its run."""

    def __init__(self, board: Board, worker: int) -> None:
        self.board, self.worker = board, worker
        self.assignment: Assignment | None = None
        """Who is in the generation that this worker is in."""
        self._left = -1

    @property
    def number(self) -> int:
        """The number of this worker's generation; 0 before its first."""
        return 0 if self.assignment is None else self.assignment.number

    @property
    def change(self) -> tuple[int, bool, bool] | None:
        """What has changed since this generation was formed (see Board.change)."""
        return self.board.change if self.board.generation == self.number else None

    def outdated(self) -> bool:
        """Say whether this worker's generation has lost a worker, or will any moment.

        Peers' ends are seen a moment before the launcher has noted what they mean.
        """
        board = self.board

        def look() -> bool:
            return max(board.broken, board.generation - 1) >= self.number

        return self.number > 0 and wait_until(look, time.monotonic() + _NOTICE_S)

    def leave(self) -> None:
        """Leave this generation."""
        self._left = self.number
        self.board.leave(self.worker, self._left)

    def worker_of(self, rank: int) -> int:
        """Return the worker that a rank of this generation is."""
        return rank if self.assignment is None else self.assignment.workers[rank]

    def join(self, timeout_s: float | None = None) -> Assignment:
        """Return this worker's generation, waiting for the next one after it was left.

        Raises:
            NotNeededError: There is none with this worker, nor will there be.
            StartError: There was none in time.
        """
        if self.assignment is not None and self._left < self.number:
            return self.assignment
        if self._left < 0:
            self.leave()
        found: list[Assignment] = []

        def look() -> bool:
            board = self.board
            number = board.generation
            if number > self._left and (text := board.assignment(number)) is not None:
                assignment = Assignment.decode(number, text)
                if self.worker in assignment.workers:
                    found.append(assignment)
                    return True
            if board.dismissed(self.worker):
                raise NotNeededError(
                    "This worker is not part of the next generation: its host was removed, or the "
                    "job is over."
                )
            return False

        limit_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        if not wait_until(look, limit_s):
            raise StartError(
                f"There was no generation after number {self._left} within {timeout_s:g} s. The "
                "launcher says what it waits for; --elastic-timeout is how long it does."
            )
        self.assignment = found[0]
        return found[0]


@functools.cache
def _membership(path: str, worker: int) -> Membership:
    return Membership(Board.open(path), worker)


def membership(environ: Mapping[str, str] = os.environ) -> Membership | None:
    """Return this process's part in an elastic run; None where the run is not elastic.

    Raises:
        StartError: The launcher's board cannot be opened.
    """
    if WORKER not in environ or "FARANDOLE_BOARD" not in environ:
        return None
    return _membership(environ["FARANDOLE_BOARD"], int(environ[WORKER]))

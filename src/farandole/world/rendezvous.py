"""Meeting the other workers: give my payload, get everybody's, in rank order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from farandole.errors import StartError, UsageError
from farandole.world.board import POST_BYTES, Board

if TYPE_CHECKING:
    from farandole.world.world import World

# The first looks come fast, because peers that are in step answer within microseconds; the later
# ones cost nothing while a peer still imports torch.
_FIRST_SLEEP_S = 20e-6
_LONGEST_SLEEP_S = 2e-3
_MORE, _LAST = b"+", b"."


class Rendezvous(Protocol):
    """A place where all ranks of a job exchange small payloads, round by round."""

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Give this rank's payload, and get everybody's in rank order.

        Every call is the next round, and every rank calls equally often: a round is a barrier.

        Args:
            payload: Any bytes, empty ones too.
            timeout_s: How long to wait for the others; the job's start time-out when None.

        Raises:
            StartError: Ranks are missing; the message names them and says what they do.
        """


def connect(world: World) -> Rendezvous:
    """Find the meeting place that this worker's launcher offers."""
    if world.board is not None:
        board = Board.open(world.board)
        if board.size != world.size:
            board.close()
            raise StartError(
                f"FARANDOLE_SIZE={world.size}, but the launcher's board is for {board.size} "
                "workers. Let `farandole run` set FARANDOLE_SIZE and FARANDOLE_BOARD."
            )
        return BoardRendezvous(
            board, world.rank, timeout_s=world.start_timeout_s, rank_hosts=world.rank_hosts
        )
    if world.size == 1:
        return SoloRendezvous()
    if world.source == "farandole":
        raise UsageError(
            f"FARANDOLE_RANK={world.rank} and FARANDOLE_SIZE={world.size} are set, but "
            "FARANDOLE_BOARD is not. Start the workers with `farandole run`, which sets all three."
        )
    if world.source == "torchrun":
        from farandole.world.store import connect_store

        return connect_store(world)
    if world.source == "slurm" and not world.one_host:
        from farandole.world.tcp import connect_tcp

        return connect_tcp(world, os.environ)
    if world.source in ("openmpi", "mpich") and not world.one_host:
        from farandole.world.mpi import connect_mpi

        return connect_mpi(world)
    from farandole.world.announce import connect_announced

    return connect_announced(world)


class SoloRendezvous:
    """The meeting place of one worker, who is always there."""

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Return the one payload there is."""
        return [payload]


class BoardRendezvous:
    """Meeting at a bulletin board in shared memory."""

    def __init__(
        self, board: Board, rank: int, *, timeout_s: float, rank_hosts: Sequence[str] = ()
    ) -> None:
        """Come to a board.

        Args:
            board: The launcher's, which stays open.
            rank: My rank.
            timeout_s: How long an exchange waits for the others.
            rank_hosts: The host of each rank, where there are several.
        """
        self.board = board
        self._rank_hosts = rank_hosts
        self._rank = rank
        self._timeout_s = timeout_s
        # Who meets at this board a second time, after shutdown() and init(), goes on counting.
        self._round = board.rounds(rank)

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Post the payload and wait for everybody's; long ones take more than one round."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        parts: list[bytes] = [b""] * self.board.size
        rest = payload
        while True:
            chunk, rest = rest[: POST_BYTES - 1], rest[POST_BYTES - 1 :]
            answers = self._one_round((_MORE if rest else _LAST) + chunk, deadline)
            parts = [part + answer[1:] for part, answer in zip(parts, answers, strict=True)]
            # All ranks read the same answers, so that all agree on whether a round follows.
            if all(answer[:1] == _LAST for answer in answers):
                return parts

    def _one_round(self, payload: bytes, deadline: float) -> list[bytes]:
        number = self._round
        self.board.post(self._rank, number, payload)
        answers: dict[int, bytes] = {}

        def all_there() -> bool:
            for rank in range(self.board.size):
                if rank not in answers:
                    answer = self.board.posted(rank, number)
                    if answer is None:
                        self._check_end(rank, number)
                        return False
                    answers[rank] = answer
            return True

        if not wait_until(all_there, deadline):
            missing = [r for r in range(self.board.size) if self.board.posted(r, number) is None]
            if missing:
                raise StartError(self._absence(missing, number), culprit=missing[0])
            all_there()
        self._round = number + 1
        return [answers[rank] for rank in range(self.board.size)]

    def _check_end(self, rank: int, number: int) -> None:
        """Raise when a rank that is waited for has ended, since it will never come."""
        code = self.board.exit_code(rank)
        # It may have posted between the look at its post and the look at its end.
        if code is None or self.board.posted(rank, number) is not None:
            return
        how = f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
        before = (
            "without calling hvd.init()"
            if number == 0
            else "while the others waited for it (hvd.init() or hvd.shutdown())"
        )
        failure = self.board.failure(rank)
        reason = f": {failure.text}" if failure else ""
        raise StartError(f"{self._named(rank)} {how} {before}{reason}.", culprit=rank)

    def _absence(self, missing: list[int], number: int) -> str:
        what = (
            "has not called hvd.init()"
            if number == 0
            else "has not come to the exchange that the others wait in"
        )
        lines = []
        for rank in missing[:8]:
            pid = self.board.pid(rank)
            running = f" (pid {pid}) is running but" if pid else ""
            lines.append(f"{self._named(rank)}{running} {what}")
        if len(missing) > 8:
            lines.append(f"and {len(missing) - 8} more ranks")
        return (
            "; ".join(lines) + ". Call hvd.init() on every rank, or give slow ranks more time: "
            "--start-timeout SECONDS (FARANDOLE_START_TIMEOUT)."
        )

    def _named(self, rank: int) -> str:
        return (
            f"rank {rank} on host {self._rank_hosts[rank]}" if self._rank_hosts else f"rank {rank}"
        )


def wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Look again and again, ever less often, until it is true (True) or too late (False)."""
    pause = _FIRST_SLEEP_S
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_SLEEP_S)
    return True

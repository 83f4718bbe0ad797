"""The boards of all hosts kept alike: what ranks post and how they end is passed on.

Every host has a board for all ranks. Its workers write and read there, as on one host; the agent
passes on what they post, and writes what it hears of others in their places. A board has two
places per rank, and that is enough also here: a rank posts round k + 2 only when it has seen
everybody's post of round k + 1, and nobody posts that before having read round k.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from farandole.launch.control import Ended, LastSteps, Post
from farandole.launch.supervisor import Exited
from farandole.world.board import Board, Failure

# While workers meet, one round follows the other within milliseconds; later a look costs nothing.
_BUSY_S = 0.002
_IDLE_S = 0.05
_BUSY_FOR_S = 2.0


class Mirror:
    """One host's board, seen from its agent."""

    def __init__(self, board: Board, ranks: Sequence[int]) -> None:
        """Begin.

        Args:
            board: This host's board.
            ranks: The ranks of this host.
        """
        self._board = board
        self._next = dict.fromkeys(ranks, 0)
        self._last_steps = LastSteps(last_step=0, last_recorded=0)
        self._busy_until = time.monotonic() + _BUSY_FOR_S

    def patience_s(self) -> float:
        """Say how long it takes until somebody should look for posts again."""
        return _BUSY_S if time.monotonic() < self._busy_until else _IDLE_S

    def fresh(self) -> list[Post | LastSteps]:
        """Return what the ranks of this host have posted since the last call."""
        posts: list[Post | LastSteps] = []
        for rank, round in self._next.items():
            while (payload := self._board.posted(rank, round)) is not None:
                posts.append(Post(rank=rank, round=round, payload=payload))
                round += 1
            self._next[rank] = round
        if posts:
            self._busy_until = time.monotonic() + _BUSY_FOR_S
        if 0 in self._next:
            said = LastSteps(
                last_step=self._board.last_step, last_recorded=self._board.last_recorded
            )
            if said != self._last_steps:
                self._last_steps = said
                posts.append(said)
        return posts

    def take(self, message: Post | LastSteps | Ended) -> None:
        """Write what a rank of another host has done."""
        if isinstance(message, LastSteps):
            if 0 not in self._next:
                self._board.last_step = message.last_step
                self._board.last_recorded = message.last_recorded
            return
        if message.rank in self._next:
            return
        if isinstance(message, Post):
            self._board.post(message.rank, message.round, message.payload)
            self._busy_until = time.monotonic() + _BUSY_FOR_S
            return
        if message.failure:
            # Before the end, so that whoever sees that finds the reason.
            self._board.note_failure(
                message.rank,
                message.failure,
                time_ns=0,
                secondary=message.secondary,
                culprit=message.culprit if message.culprit >= 0 else None,
            )
        self._board.note_exit(message.rank, message.code)


def ended(exited: Exited, step: int) -> Ended:
    """Put an end into a message, with times that mean something on another host's clock."""
    now_ns = time.time_ns()
    failure = exited.failure
    return Ended(
        rank=exited.rank,
        code=exited.code,
        ago_ns=now_ns - exited.time_ns,
        step=step,
        failure=failure.text if failure else "",
        failure_ago_ns=now_ns - failure.time_ns if failure else 0,
        secondary=failure.secondary if failure else False,
        culprit=-1 if failure is None or failure.culprit is None else failure.culprit,
    )


def exited(message: Ended) -> Exited:
    """Read such a message, on this host's clock."""
    now_ns = time.time_ns()
    failure = None
    if message.failure:
        failure = Failure(
            time_ns=now_ns - message.failure_ago_ns,
            text=message.failure,
            secondary=message.secondary,
            culprit=message.culprit if message.culprit >= 0 else None,
        )
    return Exited(
        rank=message.rank,
        code=message.code,
        now=time.monotonic(),
        time_ns=now_ns - message.ago_ns,
        failure=failure,
    )

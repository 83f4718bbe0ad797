"""Fake worlds: N real processes on this host that meet in memory, for tests of collective code.

Nothing is launched and no port is opened: the ranks are forked from a nursery, wait for functions
to call, and send back what these return.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from farandole.errors import FarandoleError
from farandole.testing.nursery import Nursery
from farandole.transport.protocol import LOOPBACK, Exchange
from farandole.world.board import Board
from farandole.world.rendezvous import BoardRendezvous

_MEETING_TIMEOUT_S = 60.0
_GRACE_S = 5.0


class RankError(FarandoleError, RuntimeError):
    """A function failed on a rank of a fake world; the message has the traceback from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A rank's own view of a fake world: the first argument of every function it calls."""

    rank: int
    size: int
    exchange: Exchange
    """A rendezvous of all ranks, apart from the one that `hvd.init()` uses."""
    state: dict[str, Any] = field(default_factory=dict)
    """Stays from call to call: for transports, engines, models."""


class FakeWorld:
    """Real ranks on this host that call functions.

    Functions travel by reference where they can be imported, else by value. They run with the
    variables that `farandole run` sets, so that `hvd.init()` works in them.

    Example:
        >>> def double(member, x):
        ...     import torch, farandole.torch as hvd
        ...     hvd.init()
        ...     return hvd.allreduce(torch.tensor([x]), op=hvd.Sum).item()
        >>> with FakeWorld(2) as world:  # doctest: +SKIP
        ...     world.run(double, 3)
        [6, 6]
    """

    def __init__(
        self,
        size: int,
        *,
        transport: str = "auto",
        per_host: int | None = None,
        helpers: int = 0,
        nursery: Nursery | None = None,
    ) -> None:
        """Fork the ranks.

        Args:
            size: how many.
            transport: which transport `hvd.init()` shall take: "auto", "shm" or "gloo".
            per_host: so many of them at a time think that they have a host of their own: host0,
                host1 and so on, all on loopback. By default all are on one host.
            helpers: processes besides, numbered after the ranks, which nobody meets.
            nursery: where the ranks come from; by default one of this world's own, which takes a
                second or two to start.
        """
        self.size = size
        self._own = Nursery() if nursery is None else None
        self._boards = [Board.create(size) for _ in range(2)]
        pairs = [socket.socketpair() for _ in range(size + helpers)]
        self._connections = [Connection(ours.detach()) for ours, _ in pairs]
        orders = {
            "size": size,
            "per_host": per_host or size,
            "board": self._boards[0].path,
            "meeting": self._boards[1].path,
            "transport": transport,
        }
        starter = nursery or self._own
        assert starter is not None
        self.pids = starter.fork([theirs.fileno() for _, theirs in pairs], orders)
        for _, theirs in pairs:
            theirs.close()

    def run(
        self, function: Callable[..., Any], *arguments: Any, timeout_s: float = 60.0
    ) -> list[Any]:
        """Call `function(member, *arguments)` on every rank; return the values in rank order.

        Raises:
            RankError: it failed on some ranks.
            TimeoutError: it did not end; the ranks are killed, and their stacks are on stderr.
        """
        self.start(function, *arguments)
        return self.finish(timeout_s=timeout_s)

    def start(
        self, function: Callable[..., Any], *arguments: Any, ranks: Sequence[int] | None = None
    ) -> None:
        """Begin a call on all ranks or some; `finish` gets the values."""
        import cloudpickle

        call = cloudpickle.dumps((function, arguments))
        for rank in self._chosen(ranks):
            self._connections[rank].send_bytes(call)

    def finish(self, ranks: Sequence[int] | None = None, *, timeout_s: float = 60.0) -> list[Any]:
        """Wait for the values of a call that was started."""
        chosen = self._chosen(ranks)
        answers = self._receive(chosen, time.monotonic() + timeout_s)
        failed = [(rank, text) for rank, (good, text) in answers.items() if not good]
        if failed:
            raise RankError("\n".join(f"rank {rank}:\n{text}" for rank, text in failed))
        return [answers[rank][1] for rank in chosen]

    def kill(self, rank: int) -> None:
        """End a rank by SIGKILL, in the middle of whatever it does."""
        os.kill(self.pids[rank], signal.SIGKILL)
        for board in self._boards:
            board.note_exit(rank, -signal.SIGKILL)

    def close(self) -> None:
        """End all ranks."""
        for connection in self._connections:
            connection.close()
        deadline = time.monotonic() + _GRACE_S
        while any(map(_runs, self.pids)) and time.monotonic() < deadline:
            time.sleep(0.001)
        for pid in filter(_runs, self.pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for board in self._boards:
            board.close()
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> FakeWorld:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _chosen(self, ranks: Sequence[int] | None) -> list[int]:
        return list(range(self.size) if ranks is None else ranks)

    def _receive(self, ranks: Sequence[int], deadline: float) -> dict[int, tuple[bool, Any]]:
        waiting = {self._connections[rank]: rank for rank in ranks}
        answers: dict[int, tuple[bool, Any]] = {}
        while waiting:
            ready = wait(list(waiting), max(deadline - time.monotonic(), 0.0))
            if not ready:
                self._show_stacks()
                raise TimeoutError(f"Ranks {sorted(waiting.values())} did not finish in time.")
            for connection in ready:
                assert isinstance(connection, Connection)
                rank = waiting.pop(connection)
                try:
                    answers[rank] = pickle.loads(connection.recv_bytes())
                except (EOFError, ConnectionError):
                    answers[rank] = (False, "it has ended")
        return answers

    def _show_stacks(self) -> None:
        for pid in filter(_runs, self.pids):
            os.kill(pid, signal.SIGUSR1)
            # One after the other, or the lines of all would be mixed.
            time.sleep(0.2)
            os.kill(pid, signal.SIGKILL)


def serve(rank: int, fd: int, orders: dict[str, Any]) -> None:
    """Call what comes along `fd` until nothing more does (in a forked rank)."""
    import cloudpickle

    # What the nursery registered for its own end is not this rank's.
    atexit._clear()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    size = orders["size"]
    if rank < size:
        os.environ |= _variables(rank, orders)
        meeting = BoardRendezvous(Board.open(orders["meeting"]), rank, timeout_s=_MEETING_TIMEOUT_S)
        member = Member(rank=rank, size=size, exchange=meeting.exchange)
    else:
        member = Member(rank=rank, size=size, exchange=_meet_nobody)
    connection = Connection(fd)
    while True:
        try:
            call = connection.recv_bytes()
        except (EOFError, ConnectionError):
            break
        try:
            function, arguments = pickle.loads(call)
            answer = (True, function(member, *arguments))
        except Exception:
            answer = (False, traceback.format_exc())
        with contextlib.suppress(ConnectionError):
            connection.send_bytes(cloudpickle.dumps(answer))
    # A rank leaves as a worker does at the end of its script.
    atexit._run_exitfuncs()


def _variables(rank: int, orders: dict[str, Any]) -> dict[str, str]:
    """Return what `farandole run` would say to a rank."""
    size, per_host = orders["size"], orders["per_host"]
    host, local_rank = divmod(rank, per_host)
    # The last host may have fewer ranks than the others.
    hosts = -(-(size - local_rank) // per_host)
    found = {
        "RANK": rank,
        "SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_SIZE": min(per_host, size - host * per_host),
        "CROSS_RANK": host,
        "CROSS_SIZE": hosts,
        "BOARD": orders["board"],
        "TRANSPORT": orders["transport"],
    }
    if per_host < size:
        found |= {"HOSTNAME": f"host{host}", "ADDRESS": LOOPBACK}
    return {f"FARANDOLE_{name}": str(value) for name, value in found.items()}


def _meet_nobody(_: bytes) -> list[bytes]:
    raise AssertionError("a helper has no rank to meet others with")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

"""Meeting at one of torch's stores: torchrun's, or the one a process group was given."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from farandole.errors import MissingExtraError, StartError, UsageError
from farandole.world.environment import is_loopback

if TYPE_CHECKING:
    from farandole.world.environment import World


# How long one wait at the store may last before somebody who presses Ctrl-C is heard.
_PATIENCE_S = 1.0


class StoreRendezvous:
    """Meeting at a torch.distributed Store, under keys of its own."""

    def __init__(self, store: Any, rank: int, size: int, *, timeout_s: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        # Who meets at this store a second time uses fresh keys; all ranks come equally often.
        visit = store.add(f"farandole/visits/{rank}", 1)
        self._prefix = f"farandole/{visit}"
        self._round = 0

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Set this rank's key of the round and wait for everybody's."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        keys = [self._key(self._round, rank) for rank in range(self._size)]
        # Not every store takes an empty value.
        self._store.set(keys[self._rank], b"=" + payload)
        self._wait(keys, deadline)
        answers = [bytes(self._store.get(key))[1:] for key in keys]
        if self._round >= 2:
            # Everybody has read the round before the last: its keys would only fill the store.
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._store.delete_key(self._key(self._round - 2, self._rank))
        self._round += 1
        return answers

    def _wait(self, keys: list[str], deadline: float) -> None:
        while True:
            left = deadline - time.monotonic()
            try:
                self._store.wait(keys, timedelta(seconds=max(0.001, min(left, _PATIENCE_S))))
                return
            except RuntimeError as error:
                missing = self._missing(keys)
                if not missing:
                    return
                if time.monotonic() < deadline:
                    continue
                names = ", ".join(f"rank {rank}" for rank in missing)
                verb = "has" if len(missing) == 1 else "have"
                raise StartError(
                    f"{names} {verb} not called hvd.init() in time. Call it on every rank, or "
                    "give slow ranks more time: FARANDOLE_START_TIMEOUT=SECONDS."
                ) from error

    def _missing(self, keys: list[str]) -> list[int]:
        try:
            return [rank for rank, key in enumerate(keys) if not self._store.check([key])]
        except RuntimeError as error:
            raise StartError(
                "The store of this job does not answer any more: the worker or launcher that "
                "served it has ended. See which worker failed first."
            ) from error

    def _key(self, number: int, rank: int) -> str:
        return f"{self._prefix}/{number}/{rank}"


def connect_store(world: World) -> StoreRendezvous:
    """Connect to the store at MASTER_ADDR and MASTER_PORT; rank 0 serves it if nobody else does."""
    if world.master_addr is None or world.master_port is None:
        raise UsageError(
            f"RANK={world.rank} and WORLD_SIZE={world.size} are set, but MASTER_ADDR and "
            "MASTER_PORT are not. Start the workers with torchrun or `farandole run`, "
            "which set all four."
        )
    try:
        # torch exports it without listing it.
        from torch.distributed import TCPStore  # type: ignore[attr-defined]
    except ImportError as error:
        raise missing_torch() from error
    serve = world.rank == 0 and not world.agent_store
    options: dict[str, Any] = {}
    listener = None
    if serve and world.master_port and is_loopback(world.master_addr):
        listener = master_listener("127.0.0.1", world.master_port)
    if listener is not None:
        # TCPStore owns the descriptor from here on.
        options["master_listen_fd"] = listener.detach()
    try:
        store = TCPStore(
            host_name=world.master_addr,
            port=world.master_port,
            world_size=world.size,
            is_master=serve,
            timeout=timedelta(seconds=world.start_timeout_s),
            # Our first exchange is the one that names who is missing.
            wait_for_workers=False,
            # The script's own init_process_group finds its store at the same address.
            multi_tenant=True,
            **options,
        )
    except RuntimeError as error:
        raise StartError(
            f"No store answers at MASTER_ADDR={world.master_addr} "
            f"MASTER_PORT={world.master_port}: rank 0 has not called hvd.init(), or another "
            f"program uses the port ({_first_line(error)})."
        ) from error
    return StoreRendezvous(store, world.rank, world.size, timeout_s=world.start_timeout_s)


def missing_torch() -> MissingExtraError:
    """Say how to get torch."""
    return MissingExtraError(
        'PyTorch is not installed. Install it with pip install "farandole[torch]"; for a CPU '
        "build, which is far smaller, take PyTorch's CPU wheel index "
        "(pip's --index-url, see PyTorch's installation page)."
    )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def master_listener(address: str, port: int) -> socket.socket | None:
    """Get a socket for a port: the launcher's where it was inherited, or a new one.

    None when the port cannot be had: most often because this very process serves it already.
    """
    return inherited_listener(address, port) or bound_listener(port, address)


def inherited_listener(address: str, port: int) -> socket.socket | None:
    """Take the launcher's socket for this port; None when it is not here (a wrapper closed it).

    It is duplicated, never used up: a second init_process_group finds it as the first did.
    """
    try:
        copy = socket.socket(fileno=os.dup(int(os.environ["FARANDOLE_MASTER_FD"])))
    except (KeyError, ValueError, OSError):
        return None
    try:
        # The number may by now stand for something else.
        if copy.getsockname()[:2] == (address, port):
            return copy
    except OSError:
        pass
    copy.close()
    return None


def bound_listener(port: int, address: str = "127.0.0.1") -> socket.socket | None:
    """Bind the port anew (0: any free one); None when it cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        return None
    return listener

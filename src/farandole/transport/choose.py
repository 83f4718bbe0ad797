"""Which transport to use, and the opening of it, with a fallback that says so once."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farandole.errors import StartError, UsageError
from farandole.format import plural
from farandole.transport.hosts import Survey, shared_memory_works, survey
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Link, Steps, Transport
from farandole.transport.reduction import Reduction, fold
from farandole.world.descriptors import reserve_descriptors
from farandole.world.environment import World
from farandole.world.routes import interface_of

if TYPE_CHECKING:
    from farandole.transport.hierarchical.transport import OpenBetween


# Descriptors that gloo and the wire take for each rank at most: sockets to that rank, to torch's
# store and to rank 0, and a file of shared memory for a moment.
_PER_RANK = 4
# Those that opening shared memory takes for a moment.
_PASSING = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTransport:
    """A transport for host memory, and what the user should hear about it."""

    transport: Transport
    address: str = LOOPBACK
    """Where the other ranks reach this one."""
    remark: str = ""


def choose(
    world: World, found: Survey | None = None, *, system: str = sys.platform, machine: str = ""
) -> str:
    """Return the transport for host memory: "solo", "shm", "gloo", "mpi" or "hierarchical".

    Args:
        world: this rank's place.
        found: what is known of the hosts, where there are several.
        system: the operating system.
        machine: the processor; this one's when "".

    Raises:
        UsageError: shared memory was asked for where it cannot be.
    """
    if world.size == 1:
        return "solo"
    if world.transport == "shm" and not world.one_host:
        raise UsageError(
            f"--transport shm needs all workers on one host, but {world.local_size} of "
            f"{world.size} are on {world.hostname}. Use --transport gloo or auto."
        )
    if world.transport == "gloo":
        return "gloo"
    flat = "mpi" if world.transport == "mpi" else "gloo"
    if not world.one_host:
        return "hierarchical" if found is not None and found.layered else flat
    if world.transport == "mpi":
        return "mpi"
    fits = shared_memory_works(system, machine or platform.machine())
    if world.transport == "shm" and not fits:
        raise UsageError(
            f"--transport shm needs Linux on x86-64; this is {system} on "
            f"{machine or platform.machine()}. Use --transport gloo or auto."
        )
    return "shm" if fits else "gloo"


def open_transport(
    world: World, exchange: Exchange, *, address: str = "", numbers: Sequence[int] = ()
) -> OpenedTransport:
    """Open the transport for host memory; all ranks call this together.

    Args:
        world: this rank's place.
        exchange: a rendezvous of all ranks.
        address: where the others reach this rank, as far as is known and not set by the user.
        numbers: those of the ranks in messages, where they are others.

    Raises:
        StartError: on every rank alike, if one of them cannot open enough files.
    """
    if world.size > 1 and not world.one_host:
        choose(world)  # what cannot be is refused before anybody is asked
        _reserve(world, exchange, numbers, _PER_RANK * world.size)
        found = survey(world, exchange, address=address, numbers=numbers)
        return _open_across(world, exchange, found)
    name = choose(world)
    if name == "solo":
        return OpenedTransport(transport=SoloTransport())
    if name == "shm":
        from farandole.transport.shm.segment import SegmentError
        from farandole.transport.shm.transport import ShmTransport

        # The peers of a process set are watched already.
        _reserve(world, exchange, numbers, _PASSING + (0 if numbers else world.size))
        try:
            transport = ShmTransport(world.rank, world.size, exchange, numbers=numbers)
            return OpenedTransport(transport=transport)
        except SegmentError as error:
            # Raised on every rank alike, so that all of them fall back.
            _reserve(world, exchange, numbers, _PER_RANK * world.size)
            return OpenedTransport(
                transport=_open_gloo(world, exchange, LOOPBACK),
                remark=f"{error} Using gloo instead.",
            )
    _reserve(world, exchange, numbers, _PER_RANK * world.size)
    names = [f"rank {number}" for number in numbers]
    return OpenedTransport(transport=_open_flat(world, exchange, LOOPBACK, names))


def _reserve(world: World, exchange: Exchange, numbers: Sequence[int], count: int) -> None:
    """Let all ranks find out together whether each of them can open so many files."""
    lack = reserve_descriptors(count)
    number = numbers[world.rank] if numbers else world.rank
    for said in exchange(f"Rank {number} is {lack}".encode() if lack else b""):
        if said:
            raise StartError(said.decode())


def _open_across(world: World, exchange: Exchange, found: Survey) -> OpenedTransport:
    """Open the transport of several hosts."""
    from farandole.transport.shm.segment import SegmentError

    trouble = found.doubt and f"{found.doubt} Give hosts different names."
    flat = "mpi" if world.transport == "mpi" else "gloo"
    if choose(world, found) == "hierarchical":
        from farandole.transport.hierarchical.transport import HierarchicalTransport, open_gloo

        open_between: OpenBetween = open_gloo
        if flat == "mpi":
            from farandole.transport.mpi import MpiTransport

            open_between = MpiTransport
        try:
            return _said(
                HierarchicalTransport(
                    world.rank,
                    found.hosts,
                    exchange,
                    address=found.address,
                    open_between=open_between,
                ),
                found,
                f"shared memory inside of each, {flat} between them",
            )
        except SegmentError as error:
            # Raised on every rank alike, so that all of them fall back.
            trouble = str(error)
    transport = _open_flat(world, exchange, found.address, found.hosts.called())
    return _said(transport, found, f"{flat} between all of them", trouble)


def _said(transport: Transport, found: Survey, how: str, trouble: str = "") -> OpenedTransport:
    device = interface_of(found.address) or "no device of this host"
    remark = (
        f"{plural(found.hosts.size, 'worker')} on {plural(len(found.hosts.ranks), 'host')}: "
        f"{how}; the network is "
        f"reached by {device} ({found.address})."
    )
    return OpenedTransport(
        transport=transport, address=found.address, remark=f"{trouble} {remark}".strip()
    )


def _open_flat(
    world: World, exchange: Exchange, address: str, names: list[str] | None = None
) -> Transport:
    """Open what talks to all ranks alike."""
    if world.transport != "mpi":
        return _open_gloo(world, exchange, address, names)
    from farandole.transport.mpi import MpiTransport

    return MpiTransport(world.rank, world.size, exchange, address=address, names=names or ())


def _open_gloo(
    world: World, exchange: Exchange, address: str, names: list[str] | None = None
) -> Transport:
    from farandole.transport.gloo import GlooTransport

    return GlooTransport(world.rank, world.size, exchange, address=address, names=names or ())


class _NoLink:
    """A link with nobody at the other end."""

    last_step: int | None = 0

    def send(self, message: bytes) -> None:
        """Send to nobody."""

    def receive(self) -> list[tuple[int, bytes]]:
        """Receive nothing."""
        return []


class SoloTransport:
    """The transport of a group of one (see transport.protocol)."""

    name = "solo"
    eager = buckets = None
    rank = 0
    size = 1

    def __init__(self) -> None:
        self.link: Link = _NoLink()

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Scale, and copy."""
        if isinstance(source.data, type(target.data)) and hasattr(source.data, "is_cuda"):
            target.data.copy_(source.data * how.prescale * how.postscale)
        else:
            fold([source.data], [target.data], source.dtype, how)
        yield from ()

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Leave it as it is."""
        yield from ()

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Copy."""
        target.data[...] = source.data
        yield from ()

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Scale, and copy."""
        return self.allreduce(source, target, how)

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Copy."""
        return self.allgather(source, target, counts[0])

    def check_peers(self) -> None:
        """Miss nobody."""

    def close(self) -> None:
        """Let go of nothing."""

"""Which transport to use, and the opening of it, with a fallback that says so once."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.transport.protocol import Exchange, Transport
from farandole.world.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A transport for host memory, and what the user should hear about it."""

    transport: Transport
    remark: str = ""


def shared_memory_works(system: str, machine: str) -> bool:
    """Say whether plain stores are seen in order: only on x86-64, tested only on Linux."""
    return system == "linux" and machine.lower() in ("x86_64", "amd64")


def choose(world: World, *, system: str = sys.platform, machine: str = "") -> str:
    """Return the transport for host memory: "solo", "shm" or "gloo".

    Raises:
        UsageError: shared memory was asked for where it cannot be.
    """
    if world.size == 1:
        return "solo"
    fits = shared_memory_works(system, machine or platform.machine())
    if world.transport == "shm":
        if not world.one_host:
            raise UsageError(
                f"--transport shm needs all workers on one host, but {world.local_size} of "
                f"{world.size} are on {world.hostname}. Use --transport gloo or auto."
            )
        if not fits:
            raise UsageError(
                f"--transport shm needs Linux on x86-64; this is {system} on "
                f"{machine or platform.machine()}. Use --transport gloo or auto."
            )
        return "shm"
    if world.transport == "gloo" or not (world.one_host and fits):
        return "gloo"
    return "shm"


def open_transport(world: World, exchange: Exchange) -> Opened:
    """Open the transport for host memory; all ranks call this together."""
    name = choose(world)
    if name == "solo":
        from farandole.transport.solo import SoloTransport

        return Opened(transport=SoloTransport())
    if name == "shm":
        from farandole.transport.shm.segment import SegmentError
        from farandole.transport.shm.transport import ShmTransport

        try:
            return Opened(transport=ShmTransport(world.rank, world.size, exchange))
        except SegmentError as error:
            # Raised on every rank alike, so that all of them fall back.
            return Opened(
                transport=_open_gloo(world, exchange), remark=f"{error} Using gloo instead."
            )
    return Opened(transport=_open_gloo(world, exchange))


def _open_gloo(world: World, exchange: Exchange) -> Transport:
    from farandole.transport.gloo import LOOPBACK, GlooTransport

    address = LOOPBACK if world.one_host else world.hostname
    return GlooTransport(world.rank, world.size, exchange, address=address)

"""What the ranks of the engine's tests run: engines in fake worlds, and short operations."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from farandole.engine.engine import Engine
from farandole.engine.loop import Loop
from farandole.engine.operations import Allreduce, Broadcast
from farandole.engine.signature import Signature
from farandole.testing import Member
from farandole.transport.protocol import Buffer, Transport
from farandole.transport.reduction import SUM, Reduction

Array = np.ndarray[Any, Any]


def open_transport(
    member: Member, name: str, hosts: Sequence[Sequence[int]] | None = None
) -> Transport:
    """Open a transport; `hosts` are the ranks of each, for the one that minds."""
    if name == "hierarchical":
        from farandole.transport.hierarchical.transport import HierarchicalTransport
        from farandole.transport.hosts import Hosts

        ranks = tuple(map(tuple, hosts or [range(member.size - 1), [member.size - 1]]))
        names = tuple(f"host{number}" for number in range(len(ranks)))
        place = Hosts(ranks=ranks, names=names)
        return HierarchicalTransport(member.rank, place, member.exchange)
    if name == "shm":
        from farandole.transport.shm.transport import ShmTransport

        return ShmTransport(member.rank, member.size, member.exchange)
    from farandole.transport.gloo import GlooTransport

    return GlooTransport(member.rank, member.size, member.exchange)


def open_engine(
    member: Member,
    name: str,
    loop: Loop | None = None,
    hosts: Sequence[Sequence[int]] | None = None,
) -> None:
    """Put an engine into the rank's state, on a loop of its own unless one is given."""
    warnings.simplefilter("error")
    loop = loop or Loop()
    loop.crowded = member.size > len(os.sched_getaffinity(0))
    member.state["engine"] = Engine(open_transport(member, name, hosts), loop, member.exchange)


def close_engine(member: Member) -> None:
    member.state.pop("engine").close()


def summing(data: Array, how: Reduction = SUM) -> Allreduce:
    """An all-reduce in place of a flat array."""
    dtype = str(data.dtype)
    buffer = Buffer(data.reshape(-1), dtype)
    return Allreduce(Signature.reducing("allreduce", dtype, data.shape, how), buffer, buffer, how)


def broadcasting(data: Array, root: int) -> Broadcast:
    """A broadcast in place."""
    dtype = str(data.dtype)
    buffer = Buffer(data.reshape(-1), dtype)
    return Broadcast(Signature("broadcast", dtype, data.shape, root=root), buffer, buffer)


def ones(count: int, value: float = 1.0) -> Array:
    return np.full(count, value, np.float32)


def total(member: Member, name: str, count: int = 4) -> float:
    """Sum 1, 2, ... over the ranks; every element must be the same."""
    data = ones(count, member.rank + 1)
    member.state["engine"].run(name, summing(data))
    assert len(set(data.tolist())) == 1
    return float(data[0])


def in_step(member: Member) -> None:
    """Wait for the other ranks without the engine."""
    member.exchange(b"")

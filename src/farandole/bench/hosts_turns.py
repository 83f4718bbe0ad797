"""What the ranks of `bench hosts` do: open every contestant once, then all-reduce in turns."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from farandole.engine.buckets import FULL, open_buckets
from farandole.engine.engine import Engine
from farandole.engine.loop import Loop
from farandole.engine.operations import Allreduce
from farandole.engine.plan import BUCKET_BYTES
from farandole.engine.signature import Signature
from farandole.testing.shaped import address_of, join_group, leave_group
from farandole.testing.worlds import Member
from farandole.transport.gloo import GlooTransport
from farandole.transport.hierarchical.transport import HierarchicalTransport
from farandole.transport.hosts import hosts_of
from farandole.transport.protocol import Buffer, Transport
from farandole.transport.reduction import SUM

_DTYPE = "float32"


def prepare(member: Member, per_host: int, nbytes: int, meeting: str) -> None:
    """Open every contestant: they share nothing but the link."""
    rank, size = member.rank, member.size
    address = address_of(rank // per_host)
    hosts = hosts_of([f"host{each // per_host}" for each in range(size)])
    join_group(member, size, meeting)
    flat = GlooTransport(rank, size, member.exchange, address=address)
    layered = HierarchicalTransport(rank, hosts, member.exchange, address=address)
    member.state["flat"] = _engine(flat, member)
    member.state["layered"] = engine = _engine(layered, member)
    member.state["data"] = np.empty(nbytes // 4, np.float32)
    counts = [min(BUCKET_BYTES, nbytes - at) // 4 for at in range(0, nbytes, BUCKET_BYTES)]
    member.state["buckets"] = open_buckets(
        engine, "bench", [(count, _DTYPE) for count in counts], note_bytes=1
    )
    member.state["step"] = 0


def take(member: Member, contestant: str) -> tuple[float, float]:
    """All-reduce once; return when this rank began, and when it had a result that is right."""
    state = member.state
    arrays = state["buckets"].arrays if contestant == "hierarchical buckets" else [state["data"]]
    for array in arrays:
        array[...] = member.rank + 1
    member.exchange(b"")
    begin_s = time.monotonic()
    if contestant == "torch gloo":
        _by_torch(state["data"])
    elif contestant == "flat gloo":
        _by_name(state["flat"], state["data"])
    elif contestant == "hierarchical":
        _by_name(state["layered"], state["data"])
    else:
        _by_buckets(state)
    end_s = time.monotonic()
    wanted = member.size * (member.size + 1) / 2
    assert all((array == wanted).all() for array in arrays), f"{contestant} is wrong"
    return begin_s, end_s


def leave(member: Member) -> None:
    """Close everything."""
    member.exchange(b"")
    for name in ("layered", "flat"):
        member.state[name].close()
    leave_group(member)


def _engine(transport: Transport, member: Member) -> Engine:
    # All ranks are on one machine, whatever they think of their hosts.
    crowded = member.size > (os.cpu_count() or 1)
    return Engine(transport, Loop(crowded=crowded, distant=True), member.exchange)


def _by_torch(data: Any) -> None:
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.from_numpy(data))


def _by_name(engine: Engine, data: Any) -> None:
    buffer = Buffer(data, _DTYPE)
    signature = Signature.reducing("allreduce", _DTYPE, data.shape, SUM)
    engine.run("bench", Allreduce(signature, buffer, buffer, SUM))


def _by_buckets(state: dict[str, Any]) -> None:
    state["step"] += 1
    note, buckets = np.zeros(1, np.uint8), state["buckets"]
    handles = [
        buckets.submit(bucket, state["step"], SUM, FULL, note)
        for bucket in range(len(buckets.arrays))
    ]
    for handle in handles:
        state["layered"].wait(handle)

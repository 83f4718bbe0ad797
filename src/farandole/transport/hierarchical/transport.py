"""The hierarchical transport: shared memory inside of hosts, one stream of each between them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

from farandole.errors import PeerDiedError
from farandole.transport.gloo import GRACE_S, GlooTransport
from farandole.transport.hierarchical import relay, slots
from farandole.transport.hierarchical.buckets import HostBuckets
from farandole.transport.hierarchical.crossing import Crossing
from farandole.transport.hierarchical.relay import Relay
from farandole.transport.hierarchical.slots import HostSlots
from farandole.transport.hosts import Hosts, exchange_among
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Link, Steps, Transport
from farandole.transport.reduction import Reduction
from farandole.transport.shm.fabric import Fabric
from farandole.transport.wire import Wire


class OpenBetween(Protocol):
    """Opens the leaders' transport, which has a rank for each host.

    It takes one round of the rendezvous. Operations may be started while earlier ones are under
    way; they are in one order on all leaders.
    """

    def __call__(
        self, rank: int, size: int, exchange: Exchange, *, address: str, wire: Wire
    ) -> Transport:
        """Open it: with a number among the leaders, a rendezvous of them, and the wire of all."""


open_gloo: OpenBetween = functools.partial(GlooTransport, at_once=relay.AT_ONCE)


class HierarchicalTransport:
    """Shared memory and a network (see transport.protocol), for hosts with several ranks.

    Sums fold over the ranks of a host, then over the hosts: the same bits on all ranks, and up to
    the rounding of floating-point sums what one fold over all ranks gives (reduction.by_hosts).
    """

    name = "hierarchical"

    def __init__(
        self,
        rank: int,
        hosts: Hosts,
        exchange: Exchange,
        *,
        address: str = LOOPBACK,
        open_between: OpenBetween = open_gloo,
    ) -> None:
        """Connect all ranks.

        Args:
            rank: my rank.
            hosts: which ranks share a host.
            exchange: a rendezvous of all ranks.
            address: an address of this host that the others reach.
            open_between: opens what leaders talk through.

        Raises:
            SegmentError: on every rank alike, if one of them could not share memory.
        """
        self.rank, self.size, self._hosts = rank, hosts.size, hosts
        here = hosts.ranks[hosts.of(rank)]
        self._fabric = fabric = Fabric.open(
            here.index(rank),
            len(here),
            exchange,
            {relay.REGION: Relay.NBYTES, slots.REGION: slots.SLOTS * slots.slot_bytes(hosts)},
            among=here,
        )
        try:
            self._wire = Wire(rank, self.size, exchange, address=address, names=hosts.called())
            between = None
            if rank in hosts.leaders:
                between = open_between(
                    hosts.of(rank),
                    len(hosts.leaders),
                    exchange_among(exchange, hosts.leaders),
                    address=address,
                    wire=self._wire,
                )
            else:
                exchange(b"")  # the leaders' round
        except BaseException:
            fabric.close()
            raise
        self.link: Link = self._wire
        self._crossing = None if between is None else Crossing(between)
        self._relay = Relay(fabric, slots.SLOTS)
        self._channel = HostSlots(fabric, self._relay, rank, hosts, self._crossing)

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Combine all sources into every target."""
        return self._channel.allreduce(source, target, how)

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""
        return self._channel.broadcast(buffer, root)

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other."""
        return self._channel.allgather(source, target, counts)

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Combine all sources; rank r gets the r-th stretch."""
        return self._channel.reducescatter(source, target, counts, how)

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Send a stretch of the source to every rank."""
        return self._channel.alltoall(source, target, counts)

    def buckets(self, exchange: Exchange, shapes: Sequence[tuple[int, str]]) -> HostBuckets:
        """Allocate gradient buckets in the host's shared memory."""
        return HostBuckets(self.rank, self._hosts, exchange, shapes, self._relay, self._crossing)

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is gone, and not only done before this rank."""
        try:
            self._fabric.check_peers()
        except PeerDiedError:
            # Who leaves because another rank is lost is not the one to name.
            self._wire.check_peers()
            raise
        self._wire.check_peers(GRACE_S)

    def close(self) -> None:
        """Leave the group."""
        self._fabric.close()
        if self._crossing is not None:
            self._crossing.transport.close()
        self._wire.close()

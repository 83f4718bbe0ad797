"""The hierarchical transport: shared memory inside of hosts, one stream of each between them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, Protocol

from farandole.errors import PeerDiedError
from farandole.transport.gloo import GRACE_S, GlooTransport
from farandole.transport.hierarchical import relay, slots
from farandole.transport.hierarchical.relay import LEADER, Crossing, Pipeline, Relay, padded
from farandole.transport.hierarchical.slots import HostSlots, share_of
from farandole.transport.hosts import Hosts, exchange_among
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Link, Steps, Transport
from farandole.transport.reduction import STORAGE, Array, Reduction, by_hosts, fold
from farandole.transport.shm.segment import Fabric, round_up
from farandole.transport.tcp_link import TcpLink


class OpenBetween(Protocol):
    """Opens the leaders' transport, which has a rank for each host.

    It takes one round of the rendezvous. Operations may be started while earlier ones are under
    way; they are in one order on all leaders.
    """

    def __call__(
        self, rank: int, size: int, exchange: Exchange, *, address: str, wire: TcpLink
    ) -> Transport:
        """Open it: with a number among the leaders, a rendezvous of them, and the wire of all."""


open_gloo: OpenBetween = functools.partial(GlooTransport, at_once=relay.AT_ONCE)


class HierarchicalTransport:
    """Shared memory and a network (see transport.protocol), for hosts with several ranks.

    Sums fold over the ranks of a host, then over the hosts: the same bits on all ranks, and up to
    the rounding of floating-point sums what one fold over all ranks gives (reduction.by_hosts).
    """

    name = "hierarchical"
    eager = None

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
            self._wire = TcpLink(rank, self.size, exchange, address=address, names=hosts.called())
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

    def buckets(
        self, exchange: Exchange, shapes: Sequence[tuple[int, str]], note_bytes: int
    ) -> HostBuckets:
        """Allocate gradient buckets in the host's shared memory; notes go with the agreement."""
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


REGION = "host buckets"


class HostBuckets:
    """The buckets of one plan. `arrays` is my memory; the same layout on every rank."""

    by_name: Literal[True] = True
    """They are reduced in an order that is agreed on: one stream between hosts carries them."""

    def __init__(
        self,
        rank: int,
        hosts: Hosts,
        exchange: Exchange,
        shapes: Sequence[tuple[int, str]],
        relay: Relay,
        crossing: Crossing | None,
    ) -> None:
        """Allocate.

        Args:
            rank: my rank among all.
            hosts: which ranks share a host.
            exchange: a rendezvous of all ranks.
            shapes: elements and type of each bucket.
            relay: moves windows through their stages.
            crossing: to the other leaders; None unless I am one.
        """
        self._hosts, self._relay, self._crossing = hosts, relay, crossing
        self._shapes = list(shapes)
        here = hosts.ranks[hosts.of(rank)]
        self._me = here.index(rank)
        offsets, end = [], 0
        for count, dtype in shapes:
            offsets.append(end)
            whole = padded(count, len(hosts.ranks))
            end += round_up(whole * STORAGE[dtype].itemsize, 4096)
        self._fabric = fabric = Fabric.open(
            self._me, len(here), exchange, {REGION: end}, among=here
        )
        self._data = [
            [
                fabric.array(r, REGION, offset, padded(count, len(hosts.ranks)), STORAGE[dtype])
                for offset, (count, dtype) in zip(offsets, shapes, strict=True)
            ]
            for r in range(len(here))
        ]
        self.arrays: list[Array] = [
            data[:count] for data, (count, _) in zip(self._data[self._me], shapes, strict=True)
        ]

    def allreduce(self, bucket: int, how: Reduction) -> Steps:
        """Combine a bucket over all ranks, in place; all of them have filled theirs."""
        count, dtype = self._shapes[bucket]
        inside, across = by_hosts(how, dtype, self._hosts.size)
        per_window = slots.SLOT_BYTES // STORAGE[dtype].itemsize
        # Every window but the last has an equal share for every host.
        per_window -= per_window % len(self._hosts.ranks)
        starts = range(0, count, per_window)
        everyone = [data[bucket] for data in self._data]

        def piece(of: Array, window: int) -> Array:
            return of[starts[window] : min(starts[window] + per_window, count)]

        def combine(window: int, number: int) -> None:
            parts = [piece(each, window) for each in everyone]
            low, high = share_of(self._relay.folders, self._me, len(parts[LEADER]))
            if low < high:
                parts = [part[low:high] for part in parts]
                fold(parts, [parts[LEADER]], dtype, inside)

        def outcome(window: int, number: int) -> Array:
            return everyone[LEADER][starts[window] : starts[window] + per_window]

        def take(window: int, number: int) -> None:
            if self._me != LEADER:
                piece(everyone[self._me], window)[...] = piece(everyone[LEADER], window)

        legs = self._crossing.combining(dtype, across, outcome) if self._crossing else ()
        return self._relay.run(
            Pipeline(windows=len(starts), fold=combine, legs=legs, take=take, lasting=True)
        )

    def close(self) -> None:
        """Leave; tensors that still point into the memory keep it."""
        self._fabric.close()

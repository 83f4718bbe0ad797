"""Gradient buckets of ranks on several hosts: written and folded where they lie.

The ranks of a host fold their buckets into the leader's, which is what crosses; the result comes
back into it, and everybody copies it from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.transport.hierarchical import slots
from farandole.transport.hierarchical.crossing import Crossing, padded
from farandole.transport.hierarchical.relay import LEADER, Course, Relay
from farandole.transport.hierarchical.slots import share_of
from farandole.transport.hosts import Hosts
from farandole.transport.protocol import Exchange, Steps
from farandole.transport.reduction import STORAGE, Array, Reduction, by_hosts, fold
from farandole.transport.shm.fabric import Fabric
from farandole.transport.shm.segment import round_up

REGION = "host buckets"


class HostBuckets:
    """The buckets of one plan. `arrays` is my memory; the same layout on every rank."""

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
            Course(windows=len(starts), fold=combine, legs=legs, take=take, lasting=True)
        )

    def close(self) -> None:
        """Leave; tensors that still point into the memory keep it."""
        self._fabric.close()

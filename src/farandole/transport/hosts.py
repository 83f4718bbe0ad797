"""Which ranks share a host, and where each host is reached: asked for once, when workers meet."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from farandole.errors import StartError
from farandole.transport.protocol import Exchange
from farandole.world.environment import World, is_loopback
from farandole.world.routes import address_towards


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The ranks of a job by host."""

    ranks: tuple[tuple[int, ...], ...]
    """Those of each host in rising order; hosts in the order of their lowest rank."""
    names: tuple[str, ...]
    """Of the hosts."""
    numbers: tuple[int, ...] = ()
    """Those of the ranks in messages, where they are others: a process set has some of all."""

    @property
    def size(self) -> int:
        """Number of all ranks."""
        return sum(map(len, self.ranks))

    @property
    def leaders(self) -> tuple[int, ...]:
        """The lowest rank of each host, which speaks for it."""
        return tuple(ranks[0] for ranks in self.ranks)

    @property
    def crowded(self) -> bool:
        """Whether some host has more than one rank."""
        return any(len(ranks) > 1 for ranks in self.ranks)

    def of(self, rank: int) -> int:
        """Return the number of a rank's host."""
        return next(host for host, ranks in enumerate(self.ranks) if rank in ranks)

    def called(self) -> list[str]:
        """Return what messages call the ranks, in their order."""
        numbers = self.numbers or range(self.size)
        hosts = (self.names[self.of(rank)] for rank in range(self.size))
        return [f"rank {n} on host {host}" for n, host in zip(numbers, hosts, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What ranks on several hosts have told each other."""

    hosts: Hosts
    address: str
    """Where the others reach this rank."""
    shares_memory: bool
    """Whether shared memory works on every host."""
    doubt: str
    """Why it is not certain which ranks share a host; "" when it is."""

    @property
    def layered(self) -> bool:
        """Whether there is something to gain by shared memory inside of hosts."""
        return self.hosts.crowded and self.shares_memory and not self.doubt


def survey(
    world: World, exchange: Exchange, *, address: str = "", numbers: Sequence[int] = ()
) -> Survey:
    """Ask all ranks for their hosts and addresses; all of them call this together.

    Args:
        world: this rank's place.
        exchange: a rendezvous of all ranks.
        address: where the others reach this rank, as far as is known and not set by the user.
        numbers: those of the ranks in messages, where they are others.
    """
    address = world.address or address or _towards_master(world)
    hello = {
        "host": world.hostname,
        "local": [world.local_rank, world.local_size],
        "address": address,
        "shares_memory": shared_memory_works(sys.platform, platform.machine()),
    }
    said = _ask(exchange, hello)
    if not all(each["address"] for each in said):
        # Whoever the launcher told no more than a name of its own asks for the way to a peer.
        known = [each for each in said if each["address"]]
        away = [each for each in known if each["host"] != world.hostname]
        hello["address"] = address or _towards_peer(world, away)
        said = _ask(exchange, hello)
    hosts = replace(hosts_of([each["host"] for each in said]), numbers=tuple(numbers))
    return Survey(
        hosts=hosts,
        address=str(hello["address"]),
        shares_memory=all(each["shares_memory"] for each in said),
        doubt=_doubt(hosts, [each["local"] for each in said]),
    )


def hosts_of(names: Sequence[str]) -> Hosts:
    """Gather ranks by the names of their hosts, given in rank order."""
    by_name: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        by_name.setdefault(name, []).append(rank)
    return Hosts(ranks=tuple(map(tuple, by_name.values())), names=tuple(by_name))


def shared_memory_works(system: str, machine: str) -> bool:
    """Say whether plain stores are seen in order: only on x86-64, tested only on Linux."""
    return system == "linux" and machine.lower() in ("x86_64", "amd64")


def exchange_among(exchange: Exchange, ranks: Sequence[int]) -> Exchange:
    """Return a rendezvous of some ranks, while all of them come to the one given."""

    def some(payload: bytes) -> list[bytes]:
        answers = exchange(payload)
        return [answers[rank] for rank in ranks]

    return some


def _ask(exchange: Exchange, hello: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(answer) for answer in exchange(json.dumps(hello).encode())]


def _towards_master(world: World) -> str:
    """Return this host's address towards the master's; "" where that tells nothing."""
    if is_loopback(world.master_addr) or world.master_addr is None:
        return ""
    address = address_towards(world.master_addr)
    # On the master itself its name may stand for loopback.
    return "" if is_loopback(address) else address


def _towards_peer(world: World, away: Sequence[dict[str, Any]]) -> str:
    if not away:
        raise StartError(
            f"No rank knows an address of its own: {world.hostname} was told no address of "
            "another host (MASTER_ADDR). Set FARANDOLE_ADDRESS on each host to the address that "
            "the others reach it by."
        )
    return address_towards(away[0]["address"])


def _doubt(hosts: Hosts, local: Sequence[Sequence[int]]) -> str:
    """Compare with what the launcher said of local ranks."""
    for name, ranks in zip(hosts.names, hosts.ranks, strict=True):
        if sorted(list(local[rank]) for rank in ranks) != [
            [i, len(ranks)] for i in range(len(ranks))
        ]:
            said = ", ".join(f"rank {r}: {local[r][0]} of {local[r][1]}" for r in ranks)
            return (
                f"{len(ranks)} ranks call their host {name}, but their local ranks do not fit "
                f"one host ({said})."
            )
    return ""

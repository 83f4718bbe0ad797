"""Who waits for whom: from what ranks say about themselves to stalls and deadlocks; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

JOIN = "join"
"""What a rank waits for that has no more data: it takes part in whatever the others submit."""


class Key(NamedTuple):
    """An operation among certain ranks."""

    members: tuple[int, ...]
    """All ranks that take part."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a rank says about itself."""

    waiting: frozenset[Key] = frozenset()
    """What it has submitted and others have not, as far as it knows."""
    complete: bool = True
    """Whether that is all of it; a page has an end."""
    blocked: bool = False
    """Whether it does nothing but wait."""
    version: int = 0
    """Grows when any of this changes."""
    looks: int = 0
    """How often it has looked; who looks is alive and not only late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """An operation that cannot begin."""

    key: Key
    waiting: tuple[int, ...]
    """The ranks that are known to have submitted it."""
    missing: tuple[int, ...]
    """The ranks that have not."""


def stalls(
    rank: int,
    said: Mapping[int, Said],
    known: Mapping[Key, Sequence[int]],
) -> list[Stall]:
    """Return what a rank waits for in vain.

    Args:
        rank: Who asks.
        said: What the ranks say about themselves; some may not be seen from here.
        known: Who is missing for certain, where that is known better.
    """
    found = []
    for key in sorted(said[rank].waiting):
        seen = [member for member in key.members if member in said]
        joined = {m for m in seen if Key(key.members, JOIN) in said[m].waiting}
        waiting = tuple(member for member in seen if key in said[member].waiting)
        unsure = {member for member in seen if not said[member].complete}
        missing = set(known[key]) if key in known else set(seen) - set(waiting) - unsure
        if key.name != JOIN:
            missing -= joined
        if missing:
            found.append(Stall(key=key, waiting=waiting, missing=tuple(sorted(missing))))
    return found


def deadlock(size: int, said: Mapping[int, Said]) -> list[Stall]:
    """Return what each rank waits for if all of them wait, and for nothing that can begin."""
    if len(said) < size or not all(each.blocked and each.waiting for each in said.values()):
        return []
    found = []
    for rank in sorted(said):
        mine = stalls(rank, said, {})
        if len(mine) < len(said[rank].waiting):
            return []
        found += [stall for stall in mine if stall.waiting[0] == rank]
    return found


def unchanged(before: Mapping[int, Said], now: Mapping[int, Said], *, looks: int) -> bool:
    """Say whether every rank has looked so many times since, and nothing has changed."""
    return before.keys() == now.keys() and all(
        now[rank].version == each.version and now[rank].looks >= each.looks + looks
        for rank, each in before.items()
    )

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
class RankStatus:
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
    said: Mapping[int, RankStatus],
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


def deadlock(size: int, said: Mapping[int, RankStatus]) -> list[Stall]:
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


def unchanged(
    before: Mapping[int, RankStatus], now: Mapping[int, RankStatus], *, looks: int
) -> bool:
    """Say whether every rank has looked so many times since, and nothing has changed."""
    return before.keys() == now.keys() and all(
        now[rank].version == each.version and now[rank].looks >= each.looks + looks
        for rank, each in before.items()
    )


# As many names of a rank as Horovod shows.
_SHOWN = 6


def headline(found: Sequence[Stall], waited_s: float) -> str:
    """Say in one line who is missing where."""
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    verb = "have" if len(first.missing) > 1 else "has"
    return (
        f"{_ranks(first.missing)} {verb} not submitted {first.key.name}{more}, for which "
        f"{_ranks(first.waiting)} waited {waited_s:.0f} s."
    )


def report(found: Sequence[Stall], waited_s: float, stacks: Mapping[int, Sequence[str]]) -> str:
    """Say which ranks are missing, for which tensors, and where these ranks are."""
    tensors: dict[int, list[str]] = {}
    for stall in found:
        for rank in stall.missing:
            tensors.setdefault(rank, []).append(stall.key.name)
    lines = [headline(found, waited_s), "Missing ranks:"]
    for rank in sorted(tensors):
        names = tensors[rank]
        more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines.append(f"{rank}: [{', '.join(names[:_SHOWN])}{more}]")
    return "\n".join([*lines, *_where(sorted(tensors), stacks)])


def deadlock_report(found: Sequence[Stall], stacks: Mapping[int, Sequence[str]]) -> str:
    """Say who waits for whom."""
    lines = ["all ranks wait for each other, and none can go on:"]
    for stall in found:
        verb = "have" if len(stall.missing) > 1 else "has"
        waits = "wait" if len(stall.waiting) > 1 else "waits"
        lines.append(
            f"{_ranks(stall.waiting)} {waits} for {stall.key.name}, which "
            f"{_ranks(stall.missing)} {verb} not submitted"
        )
    lines.append(
        "Every rank must submit the same names; look for a branch that only some ranks take."
    )
    return "\n".join([*lines, *_where(sorted(stacks), stacks)])


def _where(ranks: Sequence[int], stacks: Mapping[int, Sequence[str]]) -> list[str]:
    lines = []
    for rank in ranks:
        stack = stacks.get(rank)
        if stack:
            lines.append(f"rank {rank} is here (most recent call first):")
            lines += stack
        else:
            lines.append(f"where rank {rank} is cannot be seen from here")
    return lines


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 * _SHOWN:
        shown = ", ".join(map(str, ranks[:_SHOWN]))
        return f"ranks {shown} and {len(ranks) - _SHOWN} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"

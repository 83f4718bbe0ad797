"""What is said about a stall; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farandole.engine.stalls.judge import Stall

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

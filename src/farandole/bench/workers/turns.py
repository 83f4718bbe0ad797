"""What recording costs, from steps that were recorded and not recorded in turns; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median


@dataclass(frozen=True, slots=True)
class Turn:
    """One step."""

    time_s: float
    recorded: bool
    pair: int | None = None
    """Two neighbours have the same number: one recorded, one not."""
    more: str = ""
    """What a recorded step did that most do not: such a step is no measure of the others."""


def ratios(turns: Sequence[Turn], out_of: Mapping[str, int]) -> list[float]:
    """Return a step's time recorded over not recorded, one ratio for each pair of neighbours.

    A machine's pace drifts by far more than recording costs, but hardly from one step to the next.
    What steps that did more took beyond their neighbours is shared out over all: a mean would say
    the same, and be at the mercy of every other program.

    Args:
        turns: in their order.
        out_of: for each kind of `more`, how many steps had such a one in the number seen here.
    """
    more_s = sum(_more_s(turns, kind) / number for kind, number in out_of.items())
    bare = {turn.pair: turn.time_s for turn in turns if not turn.recorded}
    return [
        (turn.time_s + more_s) / bare[turn.pair]
        for turn in turns
        if turn.recorded and not turn.more and turn.pair in bare
    ]


def _more_s(turns: Sequence[Turn], kind: str) -> float:
    """Return the seconds that all steps of a kind took beyond the recorded ones beside them."""
    usual = [at for at, turn in enumerate(turns) if turn.recorded and not turn.more]
    found = []
    for at, turn in enumerate(turns):
        if turn.more == kind:
            beside = sorted(usual, key=lambda other: abs(other - at))[:2]
            found.append(turn.time_s - mean(turns[other].time_s for other in beside))
    return median(found) * len(found) if found else 0.0

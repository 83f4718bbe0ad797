"""What recording costs where some steps are sampled and cost more than the others; pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def ratios(
    recorded: Sequence[Sequence[float]],
    bare: Sequence[Sequence[float]],
    sampled: Sequence[Sequence[bool]],
) -> list[float]:
    """Return a step's time recorded over not recorded, one ratio for each pair of blocks.

    A block's median is that of its usual steps. What a sampled step takes beyond them is shared out
    over all recorded steps: a mean would say the same, and be at the mercy of every other program.

    Args:
        recorded: seconds of the steps of each recorded block.
        bare: of the blocks beside them.
        sampled: which of the recorded steps are sampled.
    """
    usual_s, extra_s = [], []
    for times_s, flags in zip(recorded, sampled, strict=True):
        usual_s.append(median([t for t, flag in zip(times_s, flags, strict=True) if not flag]))
        extra_s += [t - usual_s[-1] for t, flag in zip(times_s, flags, strict=True) if flag]
    steps = sum(map(len, recorded))
    each_s = median(extra_s) * len(extra_s) / steps if extra_s else 0.0
    return [(own_s + each_s) / median(other) for own_s, other in zip(usual_s, bare, strict=True)]

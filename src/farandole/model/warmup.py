"""Where a launch's warm-up ends."""

from __future__ import annotations

import numpy as np

from farandole.study.records import Floats

_WINDOW = 3
"""Steps whose median decides, so that one hiccup neither ends nor prolongs the warm-up."""
_LEAST_STEPS = 8
"""With fewer there is no second half to compare with."""
_TOLERANCE = 0.05


def warmup_steps(durations_s: Floats) -> int:
    """Return how many steps at the begin do not count.

    The first never does: it has no step before it, and plans are made in it. After that, steps are
    dropped as long as the median of the next three is above the second half's median by more than
    5 % and by more than three standard deviations; never more than half of all.
    """
    steps = len(durations_s)
    if steps < _LEAST_STEPS:
        return min(1, steps)
    half = durations_s[steps // 2 :]
    centre = float(np.median(half))
    deviation = 1.4826 * float(np.median(np.abs(half - centre)))  # MAD to standard deviation
    limit = max(centre * (1 + _TOLERANCE), centre + 3 * deviation)
    begin = durations_s[1 : steps // 2 + _WINDOW]
    windows = np.stack([begin[shift : len(begin) - _WINDOW + 1 + shift] for shift in range(3)])
    settled = np.flatnonzero(~(np.median(windows, axis=0) > limit))
    return 1 + int(settled[0]) if len(settled) else steps // 2

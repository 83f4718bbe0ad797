"""Finding the largest batch that fits: doubling, then halving the gap; pure."""

from __future__ import annotations

from collections.abc import Mapping

# Nearer than an eighth is not worth another launch.
_NEAR = 8
_MOST = 1 << 20


def next_trial(start: int, tried: Mapping[int, bool]) -> int | None:
    """Return the batch to try next; None when the largest is known well enough.

    Args:
        start: The first batch to try.
        tried: For each batch that was tried whether it fitted.
    """
    fitting = [batch for batch, fits in tried.items() if fits]
    too_large = [batch for batch, fits in tried.items() if not fits]
    if not tried:
        return start
    if not too_large:
        return 2 * max(fitting) if 2 * max(fitting) <= _MOST else None
    below, above = max(fitting, default=0), min(too_large)
    if not below:
        return above // 2 or None
    if above - below <= max(1, below // _NEAR):
        return None
    return (below + above) // 2


def largest(tried: Mapping[int, bool]) -> int | None:
    """Return the largest batch that fitted; None when none did."""
    return max((batch for batch, fits in tried.items() if fits), default=None)

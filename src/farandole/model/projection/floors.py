"""How wide an interval is when nothing better is known, by how far it reaches."""

from __future__ import annotations

FARTHEST = 16.0
"""Times the measured size; beyond it only bounds are given."""

# 90 % half-widths on the log scale: what a plain ring form missed by on a public cluster.
_HALF_WIDTHS = ((4.0, 0.20), (8.0, 0.35), (FARTHEST, 0.50))
# Such forms are too optimistic more often than not, so that the slow side gets more of the width.
_SLOW_SHARE = 0.6


def half_width(ratio: float) -> float:
    """Return the 90 % half-width, as a logarithm, at so many times the measured size."""
    return next((width for limit, width in _HALF_WIDTHS if ratio <= limit), _HALF_WIDTHS[-1][1])


def floor_sides(ratio: float) -> tuple[float, float]:
    """Return how far an interval reaches to the fast and to the slow side, as logarithms."""
    width = 2 * half_width(ratio)
    return (1 - _SLOW_SHARE) * width, _SLOW_SHARE * width

"""Whether two measurements put the same things into the same order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation: 1 for the same order, -1 for the reverse.

    Where one side cannot tell anything apart there is no order to agree on: 1 if neither can.
    """
    one, other = ranks(first), ranks(second)
    if one == other:
        return 1.0
    centre = fmean(one)
    spread = math.sqrt(
        math.fsum((rank - centre) ** 2 for rank in one)
        * math.fsum((rank - centre) ** 2 for rank in other)
    )
    if spread == 0:
        return 0.0
    together = zip(one, other, strict=True)
    return math.fsum((a - centre) * (b - centre) for a, b in together) / spread


def ranks(values: Sequence[float]) -> list[float]:
    """Return each value's place from 1, the mean place for equal ones."""
    below = [sum(other < value for other in values) for value in values]
    equal = [sum(other == value for other in values) for value in values]
    return [low + (same + 1) / 2 for low, same in zip(below, equal, strict=True)]


def order_text(throughputs: Mapping[str, float]) -> str:
    """Write throughputs from the highest down."""
    ordered = sorted(throughputs.items(), key=lambda item: -item[1])
    return " > ".join(f"{name} ({value:,.0f}/s)" for name, value in ordered)

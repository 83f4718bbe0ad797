"""What fits of the same rows count beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The scale on which errors make weights: a fit that errs by so much more counts 1/e as much.
_TEMPERATURE = 0.05


def weigh(errors: Sequence[float]) -> list[float]:
    """Return weights that add up to 1, by errors on what was left out of each fit.

    Args:
        errors: root mean squares, of logarithms.
    """
    least = min(errors)
    raw = [math.exp((least - error) / _TEMPERATURE) for error in errors]
    total = sum(raw)
    return [weight / total for weight in raw]

"""The value that changes no result of a reduction, for ranks that have joined."""

from __future__ import annotations

import math

import numpy as np

from farandole.transport.reduction import HALF_TYPES, STORAGE

# Their storage says nothing about them.
_SMALLEST_AND_LARGEST = {"float16": (2.0**-14, 65504.0), "bfloat16": (2.0**-126, 3.38e38)}
# Integers are scaled in float64, in which the largest of 64 bits would be one too many.
_LARGEST_INT64 = 2**63 - 1024


def neutral(op: str, dtype: str, prescale: float = 1.0) -> float | None:
    """Return what to bring to a reduction so that its result is that of the others.

    Args:
        op: of the reduction.
        dtype: a key of STORAGE.
        prescale: what everybody's values are multiplied by first.

    Returns:
        The value, or None if this type has none: no integer times 3 is 1.
    """
    if op == "product":
        return _one_when_scaled(dtype, prescale)
    if op not in ("min", "max") or dtype.startswith("complex") or not prescale:
        return 0
    highest = (op == "min") == (prescale > 0)
    if dtype == "bool":
        return highest
    if not _is_integer(dtype):
        return math.inf if highest else -math.inf
    least, most = int(np.iinfo(STORAGE[dtype]).min), int(np.iinfo(STORAGE[dtype]).max)
    if prescale == 1.0:
        return most if highest else least
    # What is beyond its type's range when scaled would come out at the other end of it.
    most = min(most, _LARGEST_INT64)
    least = max(least, -most) if prescale < 0 else least
    return int((most if highest else least) / max(abs(prescale), 1.0))


def _one_when_scaled(dtype: str, prescale: float) -> float | None:
    if prescale in (0.0, 1.0) or dtype == "bool":
        return 1
    if not math.isfinite(prescale):
        return None
    if not _is_integer(dtype):
        smallest, largest = _SMALLEST_AND_LARGEST.get(dtype) or _limits_of_float(dtype)
        return 1 / prescale if smallest <= abs(1 / prescale) <= largest else None
    limits = np.iinfo(STORAGE[dtype])
    if 1 / abs(prescale) > limits.max:
        return None
    least = math.ceil(1 / abs(prescale))
    for size in (least, least + 1):
        value = size if prescale > 0 else -size
        if limits.min <= value <= limits.max and math.trunc(value * prescale) == 1:
            return value
    return None


def _is_integer(dtype: str) -> bool:
    return dtype not in HALF_TYPES and np.issubdtype(STORAGE[dtype], np.integer)


def _limits_of_float(dtype: str) -> tuple[float, float]:
    limits = np.finfo(STORAGE[dtype])
    return float(limits.tiny), float(limits.max)

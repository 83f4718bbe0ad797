"""What collectives must give, computed the plain way: by the definition, on one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from farandole.transport.reduction import HALF_TYPES, STORAGE, Reduction

Array = np.ndarray[Any, Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
_COMBINE = {
    "sum": np.add,
    "average": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}


def values(dtype: str, count: int, seed: int) -> Array:
    """Random values of a type, in the form in which transports get them."""
    rng = np.random.default_rng(seed)
    if dtype in HALF_TYPES:
        wide = torch.from_numpy(rng.normal(size=count).astype(np.float32))
        return wide.to(getattr(torch, dtype)).view(torch.int16).numpy().view(np.uint16)
    storage = STORAGE[dtype]
    if storage.kind == "b":
        return rng.integers(0, 2, count).astype(np.bool_)
    if storage.kind in "iu":
        # A sum of four, three times as much, still fits.
        low, high = np.iinfo(storage).min // 12, np.iinfo(storage).max // 12
        return rng.integers(low, high, count, dtype=np.int64).astype(storage)
    if storage.kind == "c":
        return (rng.normal(size=count) + 1j * rng.normal(size=count)).astype(storage)
    return rng.normal(size=count).astype(storage)


def allows(dtype: str, how: Reduction) -> bool:
    """Whether the front doors let this combination through."""
    if dtype == "bool":
        return how.op != "average" and (how.prescale, how.postscale) == (1.0, 1.0)
    return not (dtype.startswith("complex") and how.op in ("min", "max"))


def reduced(sources: Sequence[Array], dtype: str, how: Reduction) -> Array:
    """Fold in rank order; average divides once; halves are widened first and rounded last."""
    if dtype in HALF_TYPES:
        half = getattr(torch, dtype)
        wide = [torch.from_numpy(s.copy()).view(half).float().numpy() for s in sources]
        total = torch.from_numpy(_reduced(wide, how))
        return total.to(half).view(torch.int16).numpy().view(np.uint16)
    return _reduced(sources, how)


@np.errstate(all="ignore")
def reduced_by_hosts(
    sources: Sequence[Array], hosts: Sequence[Sequence[int]], dtype: str, how: Reduction
) -> Array:
    """Fold over the ranks of each host, then over the hosts.

    Halves are at the result's size, and rounded, when they leave a host.
    """

    def two_folds(inside: Reduction, between: Reduction) -> Array:
        partial = [reduced([sources[rank] for rank in ranks], dtype, inside) for ranks in hosts]
        return reduced(partial, dtype, between)

    if how.op in ("min", "max", "product"):
        inside = Reduction(op=how.op, prescale=how.prescale)
        return two_folds(inside, Reduction(op=how.op, postscale=how.postscale))
    if dtype in HALF_TYPES:
        scale = how.postscale / len(sources) if how.op == "average" else how.postscale
        return two_folds(Reduction(prescale=how.prescale, postscale=scale), Reduction())
    total = two_folds(Reduction(prescale=how.prescale), Reduction())
    if how.op == "average":
        total = _divided(total, len(sources))
    return _scaled(total, how.postscale)


@np.errstate(all="ignore")
def _reduced(sources: Sequence[Array], how: Reduction) -> Array:
    total = _scaled(sources[0], how.prescale)
    for source in sources[1:]:
        total = _COMBINE[how.op](total, _scaled(source, how.prescale))
    if how.op == "average":
        total = _divided(total, len(sources))
    return _scaled(total, how.postscale)


def _divided(array: Array, count: int) -> Array:
    if array.dtype.kind in "iu":
        # Python's integers neither overflow nor lose digits.
        toward_zero = [abs(v) // count * (1 if v >= 0 else -1) for v in array.tolist()]
        return np.array(toward_zero, array.dtype)
    if array.dtype.kind == "c":
        parts = array.view(array.real.dtype)
        return (parts / parts.dtype.type(count)).view(array.dtype)
    return array / array.dtype.type(count)


def _scaled(array: Array, factor: float) -> Array:
    if factor == 1.0:
        return array
    if array.dtype.kind in "iu":
        return np.trunc(array.astype(np.float64) * factor).astype(array.dtype)
    if array.dtype.kind == "c":
        parts = array.view(array.real.dtype)
        return (parts * parts.dtype.type(factor)).view(array.dtype)
    return array * array.dtype.type(factor)


def same_bits(got: Array, wanted: Array) -> bool:
    """Whether two arrays are equal to the last bit."""
    return got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes()

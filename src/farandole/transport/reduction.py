"""How values of several ranks become one: the reduction asked for, and the fold that does it.

Sums fold in rank order 0..N-1 whoever does the folding, so that a result depends neither on how a
tensor was cut into chunks nor on the transport. Everything runs on the calling thread: NumPy's
loops are single-threaded, and torch splits work only above 32,768 elements.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Fold = Callable[[Sequence[Array], Array], None]
"""Makes one array of the ranks'."""

OPERATIONS = ("sum", "average", "min", "max", "product")

# Half-precision types are kept as their bits; NumPy has no bfloat16 and is slow on float16.
HALF_TYPES = frozenset({"float16", "bfloat16"})

STORAGE: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.uint16),
    "bfloat16": np.dtype(np.uint16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
}
"""The NumPy type in which a buffer of each type is handed to a transport."""

# 128 KB of float32: what a fold works on at a time stays in the core's own cache, and is not more
# than torch handles on one thread.
BLOCK_ELEMENTS = 32_768

_UFUNC: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "average": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What an all-reduce or reduce-scatter does with the ranks' values."""

    op: str = "sum"
    """One of OPERATIONS."""
    prescale: float = 1.0
    """Every rank's values are multiplied by this before they are combined."""
    postscale: float = 1.0
    """The combined values are multiplied by this."""
    divisor: int = 0
    """What an average is divided by; 0 for the number of values."""


SUM = Reduction()
AVERAGE = Reduction(op="average")


def by_hosts(how: Reduction, dtype: str, size: int) -> tuple[Reduction, Reduction]:
    """Return what to do with the values of a host's ranks, and then with those of the hosts.

    Integers come out as from one fold over all ranks; of floats only the order of additions
    differs. Half precision is rounded once more, between the two: its values are scaled down to
    the result's size before that, so that an average cannot overflow on its way.

    Args:
        how: the reduction over all ranks.
        dtype: the element type.
        size: number of all ranks.
    """
    if how.op not in ("sum", "average"):
        return (
            Reduction(op=how.op, prescale=how.prescale),
            Reduction(op=how.op, postscale=how.postscale),
        )
    if dtype in HALF_TYPES:
        scale = how.postscale / size if how.op == "average" else how.postscale
        return Reduction(prescale=how.prescale, postscale=scale), SUM
    between = Reduction(op=how.op, postscale=how.postscale, divisor=size)
    return Reduction(prescale=how.prescale), between


def fold(sources: Sequence[Array], targets: Sequence[Array], dtype: str, how: Reduction) -> None:
    """Combine `sources`, given in rank order, into every array of `targets`.

    Args:
        sources: one flat array per rank, all of one length, in the storage type of `dtype`.
        targets: arrays of that length; each may be one of the sources.
        dtype: the element type, a key of STORAGE.
        how: the reduction.
    """
    small = len(sources[0]) <= BLOCK_ELEMENTS
    _QUIET.copy().run(_fold_block if small else _fold_blocks, sources, targets, dtype, how)


@lru_cache(maxsize=256)
def small_fold(dtype: str, how: Reduction, count: int) -> Fold:
    """Return what combines `count` small arrays into one, with all decided that can be.

    For operations that come again and again, of which these decisions were the larger part.
    """
    plain = how.prescale == how.postscale == 1.0 and STORAGE[dtype].kind == "f"
    combine = _UFUNC[how.op]
    if count != 2 or how.divisor or not plain:
        return lambda parts, out: fold(parts, [out], dtype, how)
    if how.op != "average":
        # By its name: NumPy warns of a third argument of minimum and maximum.
        return lambda parts, out: _QUIET.copy().run(combine, parts[0], parts[1], out=out)
    half = _constant(STORAGE[dtype], 0.5)

    def average(parts: Sequence[Array], out: Array) -> None:
        np.add(parts[0], parts[1], out)
        np.multiply(out, half, out)

    return lambda parts, out: _QUIET.copy().run(average, parts, out)


def _quiet_context() -> Context:
    """Return a context in which NumPy does not warn.

    Infinities and overflow are for the user's loss scaler to see; a warning, or an error made of
    it, would come up on one rank alone and leave its peers waiting. Entering a copy of a context
    costs a tenth of `np.errstate`, which was a fifth of a small all-reduce.
    """
    quiet = copy_context()
    quiet.run(np.seterr, all="ignore")
    return quiet


_QUIET = _quiet_context()


def _fold_blocks(
    sources: Sequence[Array], targets: Sequence[Array], dtype: str, how: Reduction
) -> None:
    for start in range(0, len(sources[0]), BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        _fold_block([each[block] for each in sources], [t[block] for t in targets], dtype, how)


def _fold_block(
    parts: Sequence[Array], targets: Sequence[Array], dtype: str, how: Reduction
) -> None:
    if dtype in HALF_TYPES:
        _fold_half(parts, targets[0], dtype, how)
    else:
        _fold_full(parts, targets[0], how)
    for other in targets[1:]:
        other[...] = targets[0]


def _fold_full(parts: Sequence[Array], out: Array, how: Reduction) -> None:
    if how.prescale != 1.0:
        parts = [_scaled(part, how.prescale) for part in parts]
    combine = _UFUNC[how.op]
    if len(parts) == 1:
        np.copyto(out, parts[0])
    elif len(parts) == 2:
        combine(parts[0], parts[1], out=out)
    else:
        # `out` may be any of the parts, so it is written last.
        partial = combine(parts[0], parts[1])
        for part in parts[2:-1]:
            combine(partial, part, out=partial)
        combine(partial, parts[-1], out=out)
    if how.op == "average":
        _divide(out, how.divisor or len(parts))
    if how.postscale != 1.0:
        out[...] = _scaled(out, how.postscale)


def _divide(values: Array, count: int) -> None:
    if count == 1:
        return
    kind = values.dtype.kind
    if kind in "iu":
        # Toward zero, as Horovod does. NumPy's own division rounds down, and its abs() of the
        # smallest integer is negative; more ranks than fit the type need the wider one.
        wide = values.astype(np.int64)
        quotient = wide // count
        quotient += (wide < 0) & (quotient * count != wide)
        np.copyto(values, quotient, casting="unsafe")
        return
    if kind == "c":
        values = _real(values)
    if count & (count - 1) == 0:
        # The reciprocal of a power of two is exact, and multiplying is faster.
        np.multiply(values, _constant(values.dtype, 1.0 / count), out=values)
    else:
        np.divide(values, _constant(values.dtype, count), out=values)


@lru_cache(maxsize=64)
def _constant(dtype: np.dtype[Any], value: float) -> Array:
    """Return a number as NumPy takes it fastest: a scalar costs more than 256 products."""
    return np.array(value, dtype)


def _scaled(values: Array, factor: float) -> Array:
    if values.dtype.kind in "iu":
        return np.trunc(values.astype(np.float64) * factor).astype(values.dtype)
    parts = _real(values)
    scaled: Array = parts * parts.dtype.type(factor)
    return scaled.view(values.dtype)


def _real(values: Array) -> Array:
    """Return complex numbers as pairs: times a complex factor, infinity would become NaN."""
    return values.view(values.real.dtype) if values.dtype.kind == "c" else values


def _fold_half(parts: Sequence[Array], out: Array, dtype: str, how: Reduction) -> None:
    wide = [widen(part, dtype) for part in parts]
    _fold_full(wide, wide[0], how)
    narrow(wide[0], out, dtype)


_QUIET_NAN = 0x7FC0


def widen(bits: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return new float32 values of a flat array of float16 or bfloat16 bits."""
    torch = sys.modules.get("torch")
    if torch is not None:
        wide: np.ndarray[Any, Any] = (
            torch.from_numpy(bits).view(getattr(torch, dtype)).float().numpy()
        )
        return wide
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray[Any, Any], out: np.ndarray[Any, Any], dtype: str) -> None:
    """Write flat float32 values as float16 or bfloat16 bits."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.from_numpy(out).view(getattr(torch, dtype)).copy_(torch.from_numpy(values))
    elif dtype == "float16":
        np.copyto(out.view(np.float16), values, casting="unsafe")
    else:
        whole = values.view(np.uint32)
        # Half of the last bit that stays, and one more if that bit is odd: ties go to even.
        rounded = (whole + (0x7FFF + (whole >> 16 & 1))) >> 16
        np.copyto(out, np.where(np.isnan(values), _QUIET_NAN, rounded), casting="unsafe")

"""Horovod's arguments as the engine understands them: reductions, roots, rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from farandole.engine import context
from farandole.engine.engine import Engine
from farandole.engine.operations import ADASUM_TYPES
from farandole.errors import UnfitError, UsageError
from farandole.transport.reduction import Reduction

# Horovod's numbers; programs store and compare them.
Average, Sum, Adasum, Min, Max, Product = range(6)
_OPS = {
    Average: "average",
    Sum: "sum",
    Adasum: "adasum",
    Min: "min",
    Max: "max",
    Product: "product",
}
_SPECIAL = frozenset({"bool", "complex64", "complex128"})
"""Types on which not every reduction can be done."""


@lru_cache(maxsize=256)
def reduction_of(
    average: bool | None, op: int | None, prescale: float = 1.0, postscale: float = 1.0
) -> Reduction:
    """Return the reduction that Horovod's arguments ask for."""
    op = check_op(average, op)
    return Reduction(op=_OPS[op], prescale=float(prescale), postscale=float(postscale))


def check_op(average: bool | None, op: int | None) -> int:
    """Return the number of the reduction that Horovod's arguments ask for."""
    if average is not None:
        if op is not None:
            raise UsageError("Give either average= (deprecated) or op=, not both.")
        op = Average if average else Sum
    op = Average if op is None else op
    if op not in _OPS:
        raise UsageError(
            f"op={op!r} is not a reduction. Use hvd.Average, Sum, Adasum, Min, Max or Product."
        )
    return op


def gradient_reduction(op: int, predivide: float) -> Reduction:
    """Return the reduction of gradients, the division of an average in two if that is asked for."""
    if predivide != 1.0 and op != Average:
        raise UsageError("gradient_predivide_factor is for op=hvd.Average only.")
    if predivide <= 0:
        raise UsageError(f"gradient_predivide_factor={predivide}: it must be above 0.")
    if op == Adasum:
        raise UsageError(
            "op=hvd.Adasum cannot combine gradients in buckets, whose dot products are of no "
            "meaning. Use hvd.Average, or farandole.torch's DistributedOptimizer."
        )
    return reduction_of(None, op, 1.0 / predivide, predivide)


def check_arithmetic(dtype: str, how: Reduction) -> None:
    """Raise UnfitError if values of this type cannot be reduced like this."""
    if how.op == "adasum" and dtype not in ADASUM_TYPES:
        raise UnfitError(
            f"Adasum combines floating-point numbers, not {dtype}. Use hvd.Sum or hvd.Average."
        )
    if dtype not in _SPECIAL:
        return
    if dtype == "bool" and (how.op == "average" or (how.prescale, how.postscale) != (1.0, 1.0)):
        raise UnfitError("A bool tensor cannot be averaged or scaled. Convert it first.")
    if dtype.startswith("complex") and how.op in ("min", "max"):
        raise UnfitError("Complex numbers have no order: op Min and Max cannot be used on them.")


def check_root(root: int, engine: Engine | None = None) -> int:
    """Return a root's place in its process set, which is that of all workers by default.

    Raises:
        UsageError: `root` is no rank of the set.
    """
    ranks = (engine or context.current().engine).ranks
    if root in ranks:
        return ranks.index(root)
    if engine is None or not engine.number:
        raise UsageError(
            f"root_rank={root} is not a rank: there are {len(ranks)}, from 0 to {len(ranks) - 1}."
        )
    raise UsageError(
        f"root_rank={root} is not in the process set, which has ranks {list(ranks)}. Roots are "
        "given by their rank among all workers."
    )


def check_rows(shape: Sequence[int], kind: str) -> None:
    """Raise UnfitError unless there is a first dimension to go by."""
    if not shape:
        raise UnfitError(f"{kind} needs a tensor with at least one dimension; this has none.")


def scattered_rows(rows: int, engine: Engine | None = None) -> list[int]:
    """Return how many rows of a reducescatter each rank gets: the first ones get one more."""
    size = (engine or context.current().engine).size
    each, more = divmod(rows, size)
    return [each + (r < more) for r in range(size)]


def splits_of(rows: int, splits: Sequence[int] | None, engine: Engine | None = None) -> list[int]:
    """Return how many rows of an alltoall go to each rank; the last ones may go to nobody."""
    size = (engine or context.current().engine).size
    if splits is None:
        if rows % size:
            raise UsageError(
                f"alltoall of {rows} rows does not divide over {size} ranks. Give splits=."
            )
        return [rows // size] * size
    counts = [int(count) for count in splits]
    if len(counts) != size or sum(counts) > rows or min(counts) < 0:
        raise UsageError(
            f"splits={counts} does not fit: {size} numbers from 0 that add up to {rows} rows at "
            "most."
        )
    return counts

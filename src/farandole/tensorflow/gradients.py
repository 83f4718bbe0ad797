"""The gradients of a tape on their way through the buckets: all of a step by one callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from farandole.engine import context
from farandole.engine.engine import Engine
from farandole.engine.gradients import Gradients, Spec, spec_of
from farandole.errors import UsageError
from farandole.recorder.recorder import current
from farandole.tensorflow import sparse
from farandole.tensorflow.callback import call, like
from farandole.tensorflow.compression import NoneCompressor
from farandole.transport.reduction import Array, Reduction

# Sets of variables whose buckets are kept; a program has one for each model that it trains.
_MOST_SETS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How gradients are combined."""

    how: Reduction
    compressor: Any = NoneCompressor
    sparse_as_dense: bool = False

    @property
    def wire(self) -> str | None:
        """The type in which gradients travel through the buckets; None for their own."""
        wire: str | None = getattr(self.compressor, "wire", None)
        return wire

    @property
    def name(self) -> str:
        """What tells ways of compression apart."""
        return f"{self.compressor.__module__}.{self.compressor.__qualname__}"

    @property
    def is_known(self) -> bool:
        """Whether gradients go into the buckets as they are: the compression is not the user's."""
        return self.compressor is NoneCompressor or self.wire is not None


def combine(gradients: Sequence[Any], sources: Sequence[Any], way: Way) -> list[Any]:
    """Combine gradients over all ranks.

    Args:
        gradients: tensors, tf.IndexedSlices or None, one for each source.
        sources: what they are gradients of; of the same shapes and types on every rank.
        way: how.
    """
    if context.size() == 1 and way.compressor is NoneCompressor and current() is None:
        return list(gradients)
    given = [_prepared(gradient, way) for gradient in gradients]
    slices = [i for i, each in enumerate(given) if isinstance(each, tf.IndexedSlices)]
    dense = [i for i, each in enumerate(given) if each is not None and i not in slices]
    if not slices and not dense:
        return given
    packed = [_packed(given[index], way) for index in dense]
    reducer = _Reducer(sources, slices, dense, way)
    inputs = [sent for sent, _ in packed]
    outputs = [like(sent) for sent, _ in packed]
    for index in slices:
        inputs += [given[index].values, given[index].indices]
        outputs += sparse.specs(given[index])
    results = call(reducer.reduce, inputs, outputs, borrowed=True)
    for index, (_, ctx), result in zip(dense, packed, results, strict=False):
        given[index] = result if way.wire else way.compressor.decompress(result, ctx)
    for number, index in enumerate(slices):
        values, indices = results[len(dense) + 2 * number :][:2]
        given[index] = tf.IndexedSlices(values, indices, given[index].dense_shape)
    return given


class _Reducer:
    """What runs in each step: knows which of the arrays is which gradient."""

    def __init__(
        self, sources: Sequence[Any], slices: Sequence[int], dense: Sequence[int], way: Way
    ) -> None:
        # In the buckets by number: names of variables may differ between ranks.
        self._names = [f"variable {index}" for index in range(len(sources))]
        self._key = (tuple(map(_kind, sources)), way.how, way.name)
        # Places for all, or one that gets its gradient later would have none; what a compression
        # of the user's own makes of them is not known here.
        self._specs = [_spec(source) if way.is_known else None for source in sources]
        self._slices, self._dense, self._how = slices, dense, way.how
        self._wire = way.wire
        self._absent = set(range(len(sources))) - {*slices, *dense}

    def reduce(self, *values: Array) -> list[Array]:
        """Return all results; those of dense gradients hold until the next call."""
        given: list[Array | None] = [None] * len(self._names)
        for index, value in zip(self._dense, values, strict=False):
            given[index] = value
        results: list[Any] = []
        if self._dense or self._absent:
            specs = [
                spec if value is None else spec_of(value)
                for spec, value in zip(self._specs, given, strict=True)
            ]
            reduced = _movers.reduce(self._key, given, specs, self._make)
            self._check(reduced)
            results = [reduced[index] for index in self._dense]
        rest = iter(values[len(self._dense) :])
        for index, rows, places in zip(self._slices, rest, rest, strict=True):
            results += sparse.gather(rows, places, f"gradient.{index}", self._how)
        if not (self._dense or self._absent):
            context.current().count_step()
        return results

    def _make(self, engine: Engine) -> Gradients:
        return Gradients(engine, self._names, self._how, wire=self._wire)

    def _check(self, reduced: Sequence[Array | None]) -> None:
        late = [index for index in self._dense if reduced[index] is None]
        if late:
            raise UsageError(
                f"Variable {late[0]} (of {len(self._names)}, counted from 0) had no gradient in "
                "the first step. Give tape.gradient(..., unconnected_gradients="
                "tf.UnconnectedGradients.ZERO)."
            )
        found = [index for index in sorted(self._absent) if reduced[index] is not None]
        if found:
            raise UsageError(
                f"Rank {context.rank()} has no gradient of variable {found[0]} (of "
                f"{len(self._names)}, counted from 0), and another rank has one: their weights "
                "would part. Give tape.gradient(..., unconnected_gradients="
                "tf.UnconnectedGradients.ZERO) on every rank."
            )


@dataclass(slots=True)
class _Mover:
    """The buckets of one set of variables."""

    gradients: Gradients
    steps: int = 0


class _Movers:
    """The movers of this process, by what they move.

    A tape lives for one step, and a tf.function may be traced on one rank only: what outlives them
    is found by the variables' shapes and types, and made when it is first needed, in program order,
    on all ranks.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._found: dict[Any, _Mover] = {}

    def reduce(
        self,
        key: Any,
        given: Sequence[Array | None],
        specs: Sequence[Spec | None],
        make: Callable[[Engine], Gradients],
    ) -> list[Array | None]:
        """Combine a step's gradients; the results hold until the next call."""
        now = context.current()
        if now.engine is not self._engine:
            self._engine = now.engine
            self._found.clear()
        mover = self._found.pop(key, None)
        if mover is None:
            if len(self._found) >= _MOST_SETS:
                self._found.pop(next(iter(self._found))).gradients.close()
            mover = _Mover(make(now.engine))
        mover.steps += 1
        now.note_step(mover.steps)
        # One that fails is made anew, on every rank, because it fails on every rank.
        mover.gradients.prepare(specs)
        results = mover.gradients.reduce(given)
        now.count_step()
        self._found[key] = mover
        return results


_movers = _Movers()


def _prepared(gradient: Any, way: Way) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        if way.sparse_as_dense:
            return tf.convert_to_tensor(gradient)
        sparse.check(way.how)
        return gradient
    return None if gradient is None else tf.convert_to_tensor(gradient)


def _packed(gradient: Any, way: Way) -> tuple[Any, Any]:
    """Return what is sent; the buckets themselves know half precision."""
    if way.wire:
        return gradient, None
    sent, ctx = way.compressor.compress(gradient)
    return sent, ctx


def _spec(source: Any) -> Spec | None:
    shape = tf.TensorShape(source.shape)
    known = shape.is_fully_defined()
    return (tuple(shape.as_list()), tf.as_dtype(source.dtype).name) if known else None


def _kind(source: Any) -> tuple[str, str]:
    return str(tf.TensorShape(source.shape)), tf.as_dtype(source.dtype).name

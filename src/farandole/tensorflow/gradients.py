"""DistributedGradientTape: all gradients of a step go through the buckets by one callback.

Sparse ones are gathered instead. Which these are is agreed on when training begins, because in a
step every rank has to come to the same exchanges: one that has no gradient of such a variable, or
a dense one, brings no rows, or all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from farandole.elastic import generation
from farandole.engine import context
from farandole.engine.arguments import Average, gradient_reduction
from farandole.engine.engine import Engine
from farandole.engine.gradients import Gradients, Spec, spec_of
from farandole.engine.process_sets import ProcessSet
from farandole.errors import UsageError
from farandole.recorder.recorder import current
from farandole.tensorflow.callback import as_written, call, end_step, like
from farandole.tensorflow.collectives import check_sparse, gather_slices, slices_specs
from farandole.tensorflow.compression import NoneCompressor, compressor_of
from farandole.transport.reduction import Array, Reduction


@as_written
def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a tape so that its `gradient` combines gradients over all workers.

    Args:
        gradtape: a tf.GradientTape, before, during or after its recording.
        compression: hvd.Compression.none, fp16 or bf16, or a class with compress and decompress.
        sparse_as_dense: send tf.IndexedSlices as dense tensors.
        op: Average (default), Sum, Min, Max or Product.
        gradient_predivide_factor: splits the division of an average in two: gradients are divided
            by it before the sum, and by size / factor after.
        process_set: the workers that train together; one that is not among them trains alone.
        scale_local_gradients: divide gradients of local sources by the number of workers.
        device_dense: Horovod's, without effect, as are device_sparse, num_groups and groups:
            all gradients of a step go through buckets by one callback.

    Returns:
        A tape; besides a tf.GradientTape's methods it has `register_local_source(source)`, which
        leaves a variable's gradient to each worker.

    Example:
        with tf.GradientTape() as tape:
            loss = loss_of(model(x), y)
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    """
    if isinstance(gradtape, _DistributedTape):
        raise UsageError("This tape is a DistributedGradientTape already; wrap it only once.")
    if not isinstance(gradtape, tf.GradientTape):
        raise UsageError(
            f"DistributedGradientTape takes a tf.GradientTape, not a {type(gradtape).__name__}."
        )
    way = Way(
        how=gradient_reduction(op, gradient_predivide_factor),
        compressor=compressor_of(compression),
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    way.workers()  # What is wrong with the set is better said here than out of a graph.
    return _DistributedTape(gradtape, way, scale_local_gradients)


@as_written
def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a tape like DistributedGradientTape, but leave some layers to each worker.

    Args:
        local_layers: a layer or a list of layers, built, whose gradients are not combined.
        gradtape: this and all others are those of DistributedGradientTape.
    """
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, Sequence) else [layers]
    strangers = [each for each in layers if not hasattr(each, "trainable_variables")]
    if strangers:
        raise UsageError(
            f"local_layers has a {type(strangers[0]).__name__} where a Keras layer should be."
        )
    tape = DistributedGradientTape(
        gradtape,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for layer in layers:
        for variable in layer.trainable_variables:
            tape.register_local_source(variable)
    return tape


class _DistributedTape(tf.GradientTape):  # type: ignore[misc]
    """A tape around another, which records."""

    def __init__(self, tape: Any, way: Way, scale_local: bool) -> None:
        # Not the base class's: everything that it would keep is in the tape inside.
        self._inner, self._way, self._scale_local = tape, way, scale_local
        self._local: list[Any] = []

    def register_local_source(self, source: Any) -> None:
        """Leave the gradient of a variable to each worker."""
        self._local.append(source)

    @as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Return gradients, combined over all workers, in the structure of the sources."""
        found = self._inner.gradient(target, sources, output_gradients, unconnected_gradients)
        flat, of = tf.nest.flatten(found), tf.nest.flatten(sources)
        local = {_identity(source) for source in self._local}
        is_local = [_identity(source) in local for source in of]
        shared = [index for index, own in enumerate(is_local) if not own]
        combined = iter(combine([flat[i] for i in shared], [of[i] for i in shared], self._way))
        results = [
            self._scaled(gradient) if own else next(combined)
            for gradient, own in zip(flat, is_local, strict=True)
        ]
        end_step()
        return tf.nest.pack_sequence_as(sources, results)

    def __enter__(self) -> _DistributedTape:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)

    def watch(self, tensor: Any) -> None:
        """Record what happens to a tensor."""
        self._inner.watch(tensor)

    def watched_variables(self) -> Any:
        """Return the variables whose use was recorded."""
        return self._inner.watched_variables()

    def stop_recording(self) -> AbstractContextManager[None]:
        """Record nothing within this context."""
        paused: AbstractContextManager[None] = self._inner.stop_recording()
        return paused

    def reset(self) -> None:
        """Forget what was recorded."""
        self._inner.reset()

    def jacobian(self, *arguments: Any, **options: Any) -> Any:
        """Return this worker's own Jacobian: it is not combined."""
        return self._inner.jacobian(*arguments, **options)

    def batch_jacobian(self, *arguments: Any, **options: Any) -> Any:
        """Return this worker's own batch of Jacobians: they are not combined."""
        return self._inner.batch_jacobian(*arguments, **options)

    def _scaled(self, gradient: Any) -> Any:
        """Return a local source's gradient as it is applied."""
        if gradient is None or not self._scale_local:
            return gradient
        size = self._way.workers()
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / size
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / size


def _identity(source: Any) -> int:
    """Return what a Keras variable and the TensorFlow variable inside of it share."""
    return id(source if isinstance(source, tf.Variable) else getattr(source, "_value", source))


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a Keras optimizer so that gradients are combined over all workers before each update.

    It is farandole.keras's, with Horovod's order of arguments; see there. `use_locking` is
    TensorFlow 1's and has no effect.

    Raises:
        UsageError: an optimizer of TensorFlow 1, or one that is wrapped already.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise UsageError(
            f"{type(optimizer).__name__} is an optimizer of TensorFlow 1. Use one of "
            "tf.keras.optimizers, or hvd.DistributedGradientTape around your tape."
        )
    from farandole.keras import optimizer as keras_optimizer

    return keras_optimizer.DistributedOptimizer(
        optimizer,
        name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


# Sets of variables whose buckets are kept; a program has one for each model that it trains.
_MOST_SETS = 16
_DONE = np.zeros((), np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How gradients are combined."""

    how: Reduction
    compressor: Any = NoneCompressor
    sparse_as_dense: bool = False
    process_set: Any = None
    """The ranks that take part; None for all."""

    @property
    def alone(self) -> bool:
        """Whether this rank is none of those that take part."""
        return isinstance(self.process_set, ProcessSet) and self.process_set.included() is False

    def workers(self) -> int:
        """Return over how many ranks this rank's gradients are combined.

        Raises:
            UsageError: there is no such process set.
        """
        return 1 if self.alone else context.engine_of(self.process_set).size

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
    """Combine gradients over all ranks, or those of a process set; others keep theirs.

    Args:
        gradients: tensors, tf.IndexedSlices or None, one for each source.
        sources: what they are gradients of; of the same shapes and types on every rank.
        way: how.
    """
    plain = way.compressor is NoneCompressor and current() is None
    # What is traced for one worker serves several later, in an elastic run.
    plain = plain and not generation.is_elastic()
    if way.alone or (plain and way.workers() == 1):
        return list(gradients)
    given = [_prepared(gradient, way) for gradient in gradients]
    slices = [i for i, each in enumerate(given) if isinstance(each, tf.IndexedSlices)]
    dense = [i for i, each in enumerate(given) if each is not None and i not in slices]
    if not given:
        return given
    packed = [_packed(given[index], way) for index in dense]
    reducer = _Reducer(sources, slices, dense, way)
    inputs = [sent for sent, _ in packed]
    outputs = [like(sent) for sent, _ in packed]
    for index in slices:
        inputs += [given[index].values, given[index].indices]
        outputs += slices_specs(given[index], way.how)
    # One more, or a graph would not run it for a rank that has no gradients at all.
    done = tf.TensorSpec([], tf.int32)
    results = call(reducer.reduce, inputs, [*outputs, done], borrowed=True)
    for index, (_, ctx), result in zip(dense, packed, results, strict=False):
        given[index] = result if way.wire else way.compressor.decompress(result, ctx)
    for number, index in enumerate(slices):
        values, indices = results[len(dense) + 2 * number :][:2]
        given[index] = tf.IndexedSlices(values, indices, given[index].dense_shape)
    return given


@dataclass(slots=True)
class _Mover:
    """What moves the gradients of one set of variables."""

    gradients: Gradients
    gathered: Mapping[int, _Rows]
    """The sparse ones, by their place."""
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What rows of a sparse gradient are like."""

    shape: tuple[int, ...]
    dtype: str
    index_dtype: str

    def none(self) -> tuple[Array, Array]:
        """Return no rows, and where they belong."""
        kind = tf.as_dtype(self.dtype).as_numpy_dtype
        return np.empty((0, *self.shape), kind), np.empty(0, self.index_dtype)


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
        self._shapes = [tf.TensorShape(source.shape) for source in sources]
        self._slices, self._dense, self._way = slices, dense, way
        self._absent = sorted(set(range(len(sources))) - {*slices, *dense})

    def reduce(self, *values: Array) -> list[Array]:
        """Return all results; those of dense gradients hold until the next call."""
        now, engine = context.current(), context.engine_of(self._way.process_set)
        dense = dict(zip(self._dense, values, strict=False))
        rest = iter(values[len(self._dense) :])
        slices = {index: (rows, next(rest)) for index, rows in zip(self._slices, rest, strict=True)}
        # One that fails is made anew, on every rank, because it fails on every rank.
        mover = _movers.take(engine, self._key) or self._make(engine, slices)
        mover.steps += 1
        now.note_step(mover.steps)
        late = {index: slices[index] for index in slices.keys() - mover.gathered.keys()}
        given = dense | {index: self._scattered(index, *each) for index, each in late.items()}
        reduced = self._through_buckets(mover, given)
        gathered: dict[int, list[Array]] = {}
        for index, rows in sorted(mover.gathered.items()):
            mine = slices.get(index) or (_all_rows(dense[index], rows) if index in dense else None)
            gathered[index] = gather_slices(
                *(mine or rows.none()), f"gradient.{index}", self._way.how, engine
            )
        now.count_step()
        _movers.keep(engine, self._key, mover)
        present = {i for i, each in enumerate(reduced) if each is not None}
        self._check(present | {i for i, (rows, _) in gathered.items() if len(rows) or i in slices})
        results: list[Any] = [
            self._scattered(i, *gathered[i]) if i in gathered else reduced[i] for i in self._dense
        ]
        for index in self._slices:
            results += gathered.get(index) or _every_row(reduced[index], slices[index][1])
        return [*results, _DONE]

    def _make(self, engine: Engine, slices: Mapping[int, tuple[Array, Array]]) -> _Mover:
        gradients = Gradients(engine, self._names, self._way.how, wire=self._way.wire)
        mine = {
            str(index): [list(rows.shape[1:]), rows.dtype.name, places.dtype.name]
            for index, (rows, places) in slices.items()
        }
        meeting = engine.unique_name("sparse", "")
        found: dict[int, _Rows] = {}
        for answer in engine.exchange(json.dumps(mine).encode(), meeting):
            for index, (shape, dtype, index_dtype) in json.loads(answer).items():
                rows = _Rows(shape=tuple(shape), dtype=dtype, index_dtype=index_dtype)
                found.setdefault(int(index), rows)
        return _Mover(gradients, found)

    def _through_buckets(self, mover: _Mover, dense: Mapping[int, Array]) -> list[Array | None]:
        given = [None if i in mover.gathered else dense.get(i) for i in range(len(self._names))]
        specs: list[Spec | None] = [
            spec_of(value) if value is not None else None if i in mover.gathered else spec
            for i, (spec, value) in enumerate(zip(self._specs, given, strict=True))
        ]
        mover.gradients.prepare(specs)
        return mover.gradients.reduce(given)

    def _scattered(self, index: int, rows: Array, places: Array) -> Array:
        """Return sparse values as a dense array."""
        whole: Array = np.zeros((self._shapes[index][0], *rows.shape[1:]), rows.dtype)
        np.add.at(whole, places, rows)
        return whole

    def _check(self, present: set[int]) -> None:
        late = [index for index in [*self._dense, *self._slices] if index not in present]
        if late:
            raise UsageError(
                f"Variable {late[0]} (of {len(self._names)}, counted from 0) had no gradient in "
                "the first step. Give tape.gradient(..., unconnected_gradients="
                "tf.UnconnectedGradients.ZERO)."
            )
        found = [index for index in self._absent if index in present]
        if found:
            raise UsageError(
                f"Rank {context.rank()} has no gradient of variable {found[0]} (of "
                f"{len(self._names)}, counted from 0), and another rank has one: their weights "
                "would part. Give tape.gradient(..., unconnected_gradients="
                "tf.UnconnectedGradients.ZERO) on every rank."
            )


class _Movers:
    """The movers of this process, by whom they move for and what.

    A tape lives for one step, and a tf.function may be traced on one rank only: what outlives them
    is found by the variables' shapes and types, and made when it is first needed, in program order,
    on all ranks.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._found: dict[Engine, dict[Any, _Mover]] = {}

    def take(self, engine: Engine, key: Any) -> _Mover | None:
        """Return a mover, which is not there any more until it is kept again."""
        now = context.current().engine
        if now is not self._engine:
            self._engine = now
            self._found.clear()
        return self._found.setdefault(engine, {}).pop(key, None)

    def keep(self, engine: Engine, key: Any, mover: _Mover) -> None:
        """Have a mover here again, as the one that was used last."""
        found = self._found[engine]
        if len(found) >= _MOST_SETS:
            found.pop(next(iter(found))).gradients.close()
        found[key] = mover


_movers = _Movers()


def _all_rows(dense: Array, like_these: _Rows) -> tuple[Array, Array]:
    """Return a dense gradient as rows, and where they belong."""
    return dense, np.arange(len(dense), dtype=like_these.index_dtype)


def _every_row(dense: Array | None, places: Array) -> list[Array]:
    assert dense is not None
    return [dense, np.arange(len(dense), dtype=places.dtype)]


def _prepared(gradient: Any, way: Way) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        if way.sparse_as_dense:
            return tf.convert_to_tensor(gradient)
        check_sparse(way.how)
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

"""DistributedOptimizer: any Keras optimizer, with gradients combined over the workers.

The optimizer stays the object and of the class it was; only its `apply` and `stateless_apply` are
replaced on the instance. So it is saved, cloned and loaded as without Farandole.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from farandole.elastic import generation
from farandole.engine import context
from farandole.engine.arguments import Average, gradient_reduction
from farandole.engine.bucket_step import mark_as_json
from farandole.engine.engine import Engine
from farandole.engine.gradients import Gradients, Spec, meet
from farandole.engine.process_sets import ProcessSet
from farandole.errors import UsageError
from farandole.keras import backends
from farandole.keras.collectives import Compression, wire_of
from farandole.recorder.ending import StopLaunch, ended
from farandole.recorder.noise import PartNorms
from farandole.recorder.recorder import current
from farandole.transport.reduction import Array, Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The gradients of one batch, in the order of the optimizer's variables on every worker."""

    variables: list[Any]
    """All of the optimizer's, whether or not they take part this time; without those that are left
    to each worker, unless several batches are summed."""
    gradients: list[Any]
    """None for those that this worker does not have."""
    wanted: frozenset[int]
    """The variables, by their place, that are to be updated."""
    local: int = 0
    """How many of the variables, the last ones, are left to each worker: they are summed only."""

    @property
    def shared(self) -> int:
        """How many of the variables, the first ones, are combined."""
        return len(self.variables) - self.local

    @property
    def names(self) -> list[str]:
        """What errors call the variables.

        Not their paths: Keras counts up names of layers, so that equal models may differ in them.
        """
        return [f"{i} ({_path_of(v).rpartition('/')[2]})" for i, v in enumerate(self.variables)]

    def spread(self, places: Iterable[int], values: Iterable[Any]) -> list[Any]:
        """Return a list for all variables, with values at these places and None elsewhere."""
        spread: list[Any] = [None] * len(self.variables)
        for place, value in zip(places, values, strict=True):
            spread[place] = value
        return spread

    @property
    def specs(self) -> list[Spec]:
        """Shape and type of each."""
        return [
            (tuple(map(int, variable.shape)), _type_of(variable)) for variable in self.variables
        ]


class Marking(Protocol):
    """Whatever moves gradients also carries marks (engine.bucket_step)."""

    def mark(self, kind: int, number: int) -> None:
        """Say where this rank stands between two steps."""

    def close(self) -> None:
        """Let go of the memory."""


class Averaging:
    """How one optimizer's gradients are combined."""

    def __init__(
        self,
        *,
        how: Reduction,
        wire: str | None,
        passes: int,
        average_passes: bool,
        scale_local: bool,
        process_set: ProcessSet | None = None,
    ) -> None:
        """Begin; the arguments are what DistributedOptimizer was given.

        `wire` is the type in which gradients travel, None for their own.
        """
        self.how, self.wire, self.passes = how, wire, passes
        self.local_layers: tuple[Any, ...] = ()
        self.mover: Marking | None = None
        """What moves the gradients; made in the first step."""
        self.failure: BaseException | None = None
        """What a callback raised inside of a backend that would wrap it."""
        self.scaled = False
        """Whether gradients come scaled, by a LossScaleOptimizer."""
        self.batches = 0
        """Whose gradients have come in."""
        self._process_set = process_set
        self._average_passes, self._scale_local = average_passes, scale_local
        self._local: list[Any] = []
        self.paused = False
        """Whether the optimizer's own code is at work on gradients that are combined."""
        self.left_behind = False
        """Whether a step is under way that is left behind its end, and not from within."""
        self._bind()
        # With several workers their gradients tell more than those of batches.
        by_passes = self.size == 1 and passes > 1
        self._norms = PartNorms(passes, averaged=average_passes) if by_passes else None
        self._updates = 0
        generation.on_new_generation(self._enter_generation)

    def _bind(self) -> None:
        """Combine gradients among the workers that there are now."""
        self.context = context.current()
        process_set = self._process_set
        alone = process_set is not None and process_set.included() is False
        self.engine: Engine | None = None if alone else context.engine_of(process_set)
        """Of the workers that train together; None for one that trains alone."""
        self._sums: list[Array | None] = []
        self._summed = 0
        self._taking_part: frozenset[int] | None = None
        self._meeting: str | None = None

    def _enter_generation(self) -> None:
        """Go on with other workers, in an elastic run; what was on its way is given up."""
        mover, self.mover = self.mover, None
        if mover is not None:
            mover.close()
        process_set = self._process_set
        if process_set is not None and process_set.included() is None:
            raise UsageError(
                f"The process set of ranks {process_set.ranks}, in which a Keras optimizer "
                "averages gradients, ended with its generation of workers, as ranks are dealt "
                "anew. Use a DistributedOptimizer of all workers in elastic runs."
            )
        self._bind()

    @property
    def meeting(self) -> str:
        """Where the ranks meet whose optimizers this one trains with.

        By number and not by names: models that differ must meet there to find it out. Numbers are
        dealt at the first use, as a rank may still have optimizers that others do not have any
        more, or never had: TensorFlow keeps what its graphs call.
        """
        if self._meeting is None:
            assert self.engine is not None
            self._meeting = self.engine.unique_name("optimizer", "")
        return self._meeting

    @property
    def in_step(self) -> bool:
        """Whether gradients have come in that no update was made with."""
        return self._summed > 0

    def forget(self) -> None:
        """Give up a sum of gradients that is not complete."""
        self._sums, self._summed = [], 0

    @property
    def size(self) -> int:
        """Number of workers that train together."""
        return 1 if self.engine is None else self.engine.size

    @property
    def idle(self) -> bool:
        """Whether gradients are applied as they are: one worker, or combined already."""
        if self.paused or self.size > 1 or self.passes > 1:
            return self.paused
        # What TensorFlow has compiled for one worker serves several later, in an elastic run.
        return not (generation.is_elastic() and backends.backend_name() == "tensorflow")

    @property
    def backend(self) -> backends.Backend:
        """The backend that Keras runs on."""
        return backends.current()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Let the optimizer's own code call `apply` without combining once more."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def register_local(self, variable: Any) -> None:
        """Leave a variable's gradient to each worker (Horovod's register_local_var)."""
        self._local.append(variable)

    def is_local(self, variables: Sequence[Any]) -> list[bool]:
        """Say which variables are left to each worker."""
        local = {id(variable) for variable in self._local}
        for layer in self.local_layers:
            local |= {id(variable) for variable in layer.trainable_variables}
        return [id(variable) in local for variable in variables]

    def scale(self, gradient: Any) -> Any:
        """Return a local variable's gradient as it is applied."""
        return gradient / self.size if self._scale_local and gradient is not None else gradient

    def begin(self) -> None:
        """Count another batch, or raise what speaks against it."""
        self.batches += 1
        if ended():
            raise StopLaunch
        if self.context is not context.current():
            raise UsageError(
                "This optimizer was wrapped before shutdown() and init(), among workers that have "
                "parted since. Make the optimizer anew and call DistributedOptimizer again."
            )

    def reduce(self, batch: Batch, arrays: Sequence[Array | None]) -> list[Array | None] | None:
        """Combine a batch's gradients, given as arrays; None while more are to be summed first.

        The results may be views that hold until the next call.
        """
        self.begin()
        total = self._summed_up(arrays) if self.passes > 1 else list(arrays)
        if total is None:
            return None
        self.note_update()
        if self.size > 1:
            combined = self._gradients(batch).reduce(total[: batch.shared])
            total = [*combined, *total[batch.shared :]]
        self.context.count_step()
        return total

    def reduce_inside(
        self, batch: Batch, arrays: Sequence[Array | None]
    ) -> list[Array | None] | None:
        """Like reduce, in a callback of a backend: `unwrapping` raises what it raised."""
        try:
            return self.reduce(batch, arrays)
        except BaseException as error:
            self.failure = error
            raise

    @contextmanager
    def unwrapping(self) -> Iterator[None]:
        """Raise what a callback raised as it was, and not as the backend puts it."""
        # What a step of the program's own has raised since is no matter of this.
        self.failure = None
        try:
            yield
        except Exception as error:
            failure, self.failure = self.failure, None
            if failure is None:
                raise
            raise failure from error

    def mark(self, kind: int, number: int) -> None:
        """Say where this rank stands between two steps; all must stand at the same point.

        Raises:
            StepsDifferError: another rank stands elsewhere.
        """
        if self.size == 1 or ended():
            return
        if self.mover is not None:
            self.mover.mark(kind, number)
            return
        assert self.engine is not None
        meet(self.engine, self.meeting, mark_as_json(kind, number))

    def note_update(self) -> None:
        """Count an update, and let the launcher know how far training is."""
        self._updates += 1
        self.context.note_step(self._updates)

    def agree(self, batch: Batch) -> frozenset[int]:
        """Return which of the variables take part on any worker: asked in the first step only.

        For compiled steps, which must know what comes back before it does.
        """
        if self._taking_part is None:
            given = batch.gradients[: batch.shared]
            mine = [i for i, gradient in enumerate(given) if gradient is not None]
            if self.engine is not None:
                said = meet(self.engine, self.meeting, {"mine": mine})
                mine = [i for answer in said.values() for i in answer["mine"]]
            self._taking_part = frozenset(mine)
        return self._taking_part

    def _gradients(self, batch: Batch) -> Gradients:
        if self.mover is None:
            assert self.engine is not None
            self.mover = reducer = Gradients(
                self.engine,
                batch.names[: batch.shared],
                self.how,
                wire=self.wire,
                meeting=self.meeting,
                scaled=self.scaled,
            )
            # A place for every variable: which of them take part may change from step to step.
            reducer.prepare(batch.specs[: batch.shared])
        assert isinstance(self.mover, Gradients)
        return self.mover

    def _summed_up(self, arrays: Sequence[Array | None]) -> list[Array | None] | None:
        if self._norms is not None and self._norms.due and current() is not None:
            self._norms.part(arrays)
        if self._summed == 0:
            self._sums = [None if array is None else np.array(array) for array in arrays]
        else:
            for index, array in enumerate(arrays):
                total = self._sums[index]
                if array is not None:
                    self._sums[index] = np.array(array) if total is None else total + array
        self._summed += 1
        if self._summed < self.passes:
            return None
        self._summed = 0
        sums, self._sums = self._sums, []
        if self._average_passes:
            sums = [None if total is None else total / self.passes for total in sums]
        if self._norms is not None:
            self._norms.ended(None if self.scaled else current(), sums)
        return sums


def _path_of(variable: Any) -> str:
    # A variable of TensorFlow's own, which Keras's optimizers take there, has a name only.
    path: str = getattr(variable, "path", None) or variable.name
    return path


def _type_of(variable: Any) -> str:
    return str(getattr(variable.dtype, "name", variable.dtype))


_KEY = "_farandole"
_METHODS = ("apply", "stateless_apply")


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a Keras optimizer so that gradients are combined over all workers before each update.

    Args:
        optimizer: any Keras 3 optimizer, or its name; an object is changed in place.
        compression: hvd.Compression.none, fp16 or bf16: the precision in which gradients travel.
        gradient_predivide_factor: splits the division of an average in two: gradients are divided
            by it before the sum, and by size / factor after.
        op: Average (default), Sum, Min, Max or Product.
        backward_passes_per_step: batches whose gradients are summed on each worker before they
            are combined and applied; `optimizer.iterations` counts the updates.
        average_aggregated_gradients: divide that sum by the number of batches.
        process_set: the workers that train together; one that is not among them trains alone.
        scale_local_gradients: divide gradients of variables that were registered as local by the
            number of workers.
        name: Horovod's, without effect, as are device_dense, device_sparse, sparse_as_dense
            (sparse gradients always travel as dense ones), num_groups and groups (gradients
            travel in buckets).

    Returns:
        The optimizer.

    Raises:
        UsageError: it is wrapped already, or is not a Keras 3 optimizer.

    Example:
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())), "mse")
    """
    import keras

    from farandole.keras.trainer import install

    if isinstance(optimizer, str):
        optimizer = keras.optimizers.get(optimizer)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UsageError(
            f"DistributedOptimizer takes a Keras 3 optimizer, not {_describe(optimizer)}. Use one "
            "of keras.optimizers."
        )
    if is_wrapped(optimizer) or is_wrapped(getattr(optimizer, "inner_optimizer", None)):
        raise UsageError("This optimizer is a DistributedOptimizer already; wrap it only once.")
    if backward_passes_per_step <= 0:
        raise UsageError(
            f"backward_passes_per_step={backward_passes_per_step}: it must be at least 1."
        )
    averaging = Averaging(
        how=gradient_reduction(op, gradient_predivide_factor),
        wire=wire_of(compression),
        passes=backward_passes_per_step,
        average_passes=average_aggregated_gradients,
        scale_local=scale_local_gradients,
        process_set=process_set,
    )
    install()
    _wrap(optimizer, averaging)
    return optimizer


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any, *arguments: Any, local_layers: Any = None, **options: Any
) -> Any:
    """Wrap an optimizer like DistributedOptimizer, but leave some layers to each worker.

    Args:
        optimizer: any Keras optimizer.
        arguments: as of DistributedOptimizer.
        local_layers: a layer or a list of layers whose gradients are not combined.
        options: as of DistributedOptimizer.
    """
    import keras

    layers = [] if local_layers is None else local_layers
    if isinstance(layers, keras.layers.Layer):
        layers = [layers]
    strangers = [layer for layer in layers if not isinstance(layer, keras.layers.Layer)]
    if strangers:
        raise UsageError(
            f"local_layers has {_describe(strangers[0])} where a Keras layer should be."
        )
    wrapped = DistributedOptimizer(optimizer, *arguments, **options)
    averaging_of(wrapped).local_layers = tuple(layers)
    return wrapped


def is_wrapped(optimizer: Any) -> bool:
    """Say whether an optimizer is a DistributedOptimizer."""
    return _KEY in getattr(optimizer, "__dict__", {})


def averaging_of(optimizer: Any) -> Averaging:
    """Return what a wrapped optimizer's gradients go through."""
    averaging: Averaging = optimizer.__dict__[_KEY]
    return averaging


def hand_over(inner: Any, outer: Any) -> None:
    """Move the wrapping from an optimizer to the one around it.

    A LossScaleOptimizer decides by the gradients whether there is an update at all: it must see
    combined ones, or the workers would decide differently.
    """
    averaging = averaging_of(inner)
    for name in (*_METHODS, "register_local_var", _KEY):
        inner.__dict__.pop(name, None)
    _wrap(outer, averaging)


def _wrap(optimizer: Any, averaging: Averaging) -> None:
    # Into __dict__: what goes through __setattr__ is tracked as part of the optimizer's state.
    own = optimizer.__dict__
    own[_KEY] = averaging
    # As LossScaleOptimizer has one.
    averaging.scaled = hasattr(optimizer, "inner_optimizer")
    own["apply"] = _combined(optimizer, averaging)
    own["stateless_apply"] = _combined_stateless(optimizer, averaging)
    own["register_local_var"] = averaging.register_local


def _combined(optimizer: Any, averaging: Averaging) -> Any:
    plain = type(optimizer).apply

    @functools.wraps(plain)
    def apply(grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        gradients = list(grads)
        if averaging.paused:
            plain(optimizer, gradients, trainable_variables)
            return
        if averaging.idle or not gradients:
            plain(optimizer, gradients, trainable_variables)
            averaging.backend.end_step(averaging, gradients)
            return
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            if not optimizer.built:
                optimizer.build(trainable_variables)
            optimizer._check_variables_are_known(trainable_variables)
        variables = trainable_variables or optimizer._trainable_variables
        step = Step(optimizer, averaging, gradients, variables)
        with averaging.pausing():
            averaging.backend.apply(
                averaging,
                step.batch,
                lambda combined: plain(optimizer, step.results(combined), variables),
            )
        averaging.backend.end_step(averaging, gradients)

    return apply


def _combined_stateless(optimizer: Any, averaging: Averaging) -> Any:
    plain = type(optimizer).stateless_apply

    @functools.wraps(plain)
    def stateless_apply(
        optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> Any:
        gradients = list(grads)
        if averaging.paused:
            return plain(optimizer, optimizer_variables, gradients, trainable_variables)
        if not averaging.idle:
            step = Step(optimizer, averaging, gradients, optimizer._trainable_variables)
            combined = averaging.backend.combine(averaging, step.batch)
            if combined is None:
                return trainable_variables, optimizer_variables
            gradients = step.results(combined)
        with averaging.pausing():
            updated = plain(optimizer, optimizer_variables, gradients, trainable_variables)
        averaging.backend.end_step(averaging, gradients)
        return updated

    return stateless_apply


class Step:
    """Gradients as a program gives them, and as all workers see them."""

    def __init__(
        self,
        optimizer: Any,
        averaging: Averaging,
        gradients: Sequence[Any],
        variables: Sequence[Any],
    ) -> None:
        everything = optimizer._trainable_variables
        local = averaging.is_local(everything)
        shared = [index for index, own in enumerate(local) if not own]
        # Where several batches are summed, those that are left to each worker are so, too.
        summed = [i for i, own in enumerate(local) if own] if averaging.passes > 1 else []
        taken = [*shared, *summed]
        position = {index: place for place, index in enumerate(taken)}
        self._gradients, self._averaging, self._shared = list(gradients), averaging, len(shared)
        self._places = [position.get(optimizer._get_variable_index(v)) for v in variables]
        aligned: list[Any] = [None] * len(taken)
        for place, gradient in zip(self._places, gradients, strict=True):
            if place is not None:
                aligned[place] = gradient
        self.batch = Batch(
            variables=[everything[index] for index in taken],
            gradients=aligned,
            wanted=frozenset(place for place in self._places if place is not None),
            local=len(summed),
        )

    def results(self, combined: Sequence[Any]) -> list[Any]:
        """Return what the optimizer applies, in the program's order."""
        found = [
            (gradient, True) if place is None else (combined[place], place >= self._shared)
            for place, gradient in zip(self._places, self._gradients, strict=True)
        ]
        return [self._averaging.scale(each) if local else each for each, local in found]


def _describe(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}"


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """Load a compiled model and wrap its optimizer, state included.

    A model that was saved with a wrapped optimizer is an ordinary Keras file; this is
    `keras.models.load_model` and then DistributedOptimizer.

    Args:
        filepath: what `model.save` wrote.
        custom_optimizers: optimizer classes of your own.
        custom_objects: other classes and functions of your own, by name.
        compression: as of DistributedOptimizer.
        legacy_opts: Horovod's, without effect.
        options: further arguments of DistributedOptimizer.
    """
    import keras

    from farandole.keras.trainer import remember

    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects=known | dict(custom_objects or {}))
    if model.optimizer is None:
        raise UsageError(
            f"{filepath} holds a model that was not compiled: there is no optimizer to wrap. Use "
            "keras.models.load_model and compile it."
        )
    DistributedOptimizer(model.optimizer, compression=compression, **options)
    # It was compiled while it was loaded, before its optimizer was wrapped.
    model.train_function = None
    if keras.backend.backend() == "tensorflow":
        model.jit_compile = False
    remember(model)
    return model

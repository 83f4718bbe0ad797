"""DistributedOptimizer: any Keras optimizer, with gradients combined over the workers.

The optimizer stays the object and of the class it was; only its `apply` and `stateless_apply` are
replaced on the instance. So it is saved, cloned and loaded as without Farandole.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from farandole.engine.arguments import Average, gradient_reduction
from farandole.errors import UsageError
from farandole.keras.averaging import Averaging, Batch
from farandole.keras.collectives import Compression, wire_of

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

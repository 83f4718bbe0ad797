"""Reading a model's metrics: their names in the logs, their values, and state that adds up.

All metrics of Keras keep sums: totals and counts (Mean and all that wrap a function, also
RootMeanSquaredError, CosineSimilarity and the correlations, which are means over samples), entries
of confusion matrices (AUC, Precision, Recall, ...AtPrecision, F-scores, IoU), moments (R2Score).
So the state of one process that has seen all samples is the sum of all workers' states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from farandole.transport.reduction import Array

# Metrics compute in float32; what differs by more was not computed from the state at hand.
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A model's metrics at one moment, apart from the model."""

    metrics: Mapping[str, Any]
    """Metrics whose state adds up, by their first name in the logs."""
    states: Mapping[str, Sequence[Array]]
    """Their states, by the same names."""
    values: Mapping[str, Array]
    """What they say, by their names in the logs."""
    names: Mapping[str, Sequence[str]]
    """All names in the logs of each."""
    samples: float
    """How many samples the loss is of; 0 when nobody counted."""

    def fits(self, label: str, logs: Mapping[str, Any], prefix: str) -> bool:
        """Say whether the logs have what this metric said: else they are of another moment."""
        return all(_same(self.values[name], logs.get(prefix + name)) for name in self.names[label])


def read(model: Any) -> Reading:
    """Read a model's metrics."""
    metrics, states, names = {}, {}, {}
    values: dict[str, Array] = {}
    for metric, result in _results(model):
        if not is_additive(metric) or not result:
            continue
        label = next(iter(result))
        metrics[label], names[label] = metric, list(result)
        # Copies: the backend goes on writing where these are.
        states[label] = [np.array(_numpy(v), np.float64) for v in metric.variables]
        values |= result
    tracker = getattr(model, "_loss_tracker", None)
    samples = 0.0 if tracker is None else float(_numpy(tracker.count))
    return Reading(metrics=metrics, states=states, values=values, names=names, samples=samples)


def result_of(metric: Any, state: Sequence[Array], label: str) -> dict[str, Array]:
    """Return what a metric would say in another state; its own stays as it is."""
    variables = [
        keras.ops.convert_to_tensor(part.astype(v.dtype), dtype=v.dtype)
        for part, v in zip(state, metric.variables, strict=True)
    ]
    return _flat(label, metric.stateless_result(variables))


def is_additive(metric: Any) -> bool:
    """Say whether a metric's state adds up: Keras itself updates it, and Keras's all do.

    What a class of the user's adds up or does not, nobody can tell from here.
    """
    return (
        type(metric).update_state.__module__.partition(".")[0] == "keras"
        and bool(metric.variables)
        and all(is_additive(part) for part in metric._metrics)
    )


def numeric(value: Any) -> Array | str:
    """Return a log's value as float64, or its type's name if it is no number and no array."""
    try:
        if keras.ops.is_tensor(value):
            value = _numpy(value)
        # NumPy reads numbers in texts, too, and takes None for NaN.
        if value is not None and not isinstance(value, str | bytes):
            return np.array(value, np.float64)
    except (TypeError, ValueError):
        pass
    return type(value).__name__


def flatten(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return logs as Keras shows them: what a metric gives as a dict, under its inner names."""
    return {k: v for name, value in logs.items() for k, v in _unfold(name, value)}


def _results(model: Any) -> Iterator[tuple[Any, dict[str, Array]]]:
    """Yield each metric with its values under the names that they have in the logs."""
    for metric in model.metrics:
        if not hasattr(metric, "_flat_metrics"):
            yield metric, _flat(metric.name, metric.result())
        elif metric.built:
            # What `compile` was given: named by Keras, in the order of the parts.
            results, parts = metric.result(), metric.metrics
            if len(results) == len(parts):
                for part, (name, result) in zip(parts, results.items(), strict=True):
                    yield part, _flat(name, result)


def _flat(name: str, result: Any) -> dict[str, Array]:
    found = {key: numeric(value) for key, value in _unfold(name, result)}
    return {key: value for key, value in found.items() if not isinstance(value, str)}


def _unfold(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for inner, part in value.items():
            yield from _unfold(inner, part)
    else:
        yield name, value


def _same(value: Array, logged: Any) -> bool:
    other = numeric(logged) if logged is not None else ""
    return (
        not isinstance(other, str)
        and value.shape == other.shape
        and np.allclose(value, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
    )


def _numpy(value: Any) -> Array:
    array: Array = keras.ops.convert_to_numpy(value)
    return array

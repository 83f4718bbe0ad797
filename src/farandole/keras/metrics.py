"""Metrics over all workers in the place of each worker's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from farandole.engine import context
from farandole.engine.objects import allgather_object
from farandole.transport.reduction import Array

# Of keras.Model: `evaluate` returns what this gave; callbacks get a copy.
_RESULT = "_get_metrics_result_or_logs"


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Put metrics over all workers into the logs, before callbacks that come later see them.

    Metrics of Keras become what one process would say that had seen all workers' samples, however
    unequal their shares: their states are summed. Any other number in the logs is averaged,
    weighted by samples. There is one exchange per epoch.

    In `model.evaluate(callbacks=[MetricAverageCallback()])` what it returns is over all workers.

    Put it before callbacks that look at metrics: EarlyStopping, ReduceLROnPlateau, checkpoints.
    """

    def __init__(self, device: str = "") -> None:
        """Prepare.

        Args:
            device: Horovod's, without effect.
        """
        super().__init__()
        self.device = device
        self._fitting = False
        self._training: Reading | None = None
        self._validation: Reading | None = None

    def set_model(self, model: Any) -> None:
        """Begin anew: Keras calls this at the beginning of `fit` and of `evaluate`."""
        super().set_model(model)
        self._fitting = False
        self._training = self._validation = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Note that validation is part of training from here on."""
        self._fitting = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forget the epoch before."""
        self._training = self._validation = None

    def on_test_begin(self, logs: Any = None) -> None:
        """Read training metrics before validation resets them."""
        if context.size() == 1:
            return
        if not self._fitting:
            self._answer_once()
        elif self._training is None:
            self._training = read(self.model)

    def on_test_end(self, logs: Any = None) -> None:
        """Read validation metrics."""
        if self._fitting and context.size() > 1:
            self._validation = read(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put metrics over all workers into the logs."""
        if logs is None or context.size() == 1:
            return
        readings = {"": self._training or read(self.model)}
        if self._validation is not None:
            readings[VALIDATION] = self._validation
        logs.update(average(logs, readings))

    def _answer_once(self) -> None:
        """Let this `evaluate` return metrics over all workers.

        Its callbacks get a copy of what it returns, so that nothing done to their logs is seen.
        """
        model = self.model
        own_names: dict[str, Any] = model.__dict__
        plain = getattr(model, _RESULT)

        def answer(logs: Any) -> Any:
            own_names.pop(_RESULT, None)
            own = flatten(plain(logs))
            return own | average(own, {"": read(model)})

        own_names[_RESULT] = answer


def average(logs: Mapping[str, Any], readings: Mapping[str, Reading]) -> dict[str, Any]:
    """Return what all ranks' logs say together; every rank must call this.

    Args:
        logs: this rank's.
        readings: of its model's metrics, by the prefix that their names have in the logs.
    """
    offered = {
        prefix + label: (prefix, label)
        for prefix, reading in readings.items()
        for label in reading.states
        if reading.fits(label, logs, prefix)
    }
    mine = Account(
        values={name: numeric(value) for name, value in logs.items()},
        states={name: readings[prefix].states[label] for name, (prefix, label) in offered.items()},
        # Metrics that fit nowhere were reset since, and with them the count of samples.
        samples={
            prefix: reading.samples
            for prefix, reading in readings.items()
            if not reading.states or any(prefix == owner for owner, _ in offered.values())
        },
    )
    merged = merge([Account(**sent) for sent in allgather_object(mine.plain(), "keras.metrics")])
    if merged.remark is not None:
        warnings.warn(merged.remark, RuntimeWarning, stacklevel=2)
    values = dict(merged.means)
    for name, state in merged.sums.items():
        prefix, label = offered[name]
        metric = readings[prefix].metrics[label]
        values |= {prefix + key: value for key, value in result_of(metric, state, label).items()}
    return {name: value if value.shape else float(value) for name, value in values.items()}


VALIDATION = "val_"
"""What Keras puts before the names of validation metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one rank says about an epoch."""

    values: Mapping[str, Array | str]
    """Its logs as float64; of a value that is not numeric, its type's name."""
    states: Mapping[str, Sequence[Array]]
    """By a metric's first name in the logs: state that may be summed over ranks."""
    samples: Mapping[str, float]
    """How many samples its metrics are of: under "" in training, under "val_" in validation."""

    def plain(self) -> dict[str, object]:
        """Return this as data that can be sent."""
        return {
            "values": dict(self.values),
            "states": {label: list(state) for label, state in self.states.items()},
            "samples": dict(self.samples),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What all ranks together say."""

    sums: Mapping[str, Sequence[Array]]
    """Summed states: what these metrics would hold had one process seen all samples."""
    means: Mapping[str, Array]
    """Of every name in any rank's logs: the average, weighted by samples."""
    remark: str | None
    """What a user must know: the same text on every rank."""


def merge(accounts: Sequence[Account]) -> Merged:
    """Put all ranks' accounts together, in rank order."""
    names = sorted({name for account in accounts for name in account.values})
    means, odd = {}, list[str]()
    absent: dict[str, list[int]] = {}
    broken: dict[str, list[int]] = {}
    for name in names:
        found = {r: a.values[name] for r, a in enumerate(accounts) if name in a.values}
        numbers = {r: value for r, value in found.items() if not isinstance(value, str)}
        if len(numbers) < len(found) or len({value.shape for value in numbers.values()}) > 1:
            # What is text on every rank that has it is no metric.
            if numbers:
                odd.append(f"{name} is {_shapes(found)}")
            continue
        if len(found) < len(accounts):
            absent[name] = [r for r in range(len(accounts)) if r not in found]
        unfit = [r for r, value in numbers.items() if not np.isfinite(value).all()]
        if unfit:
            broken[name] = unfit
        phase = VALIDATION if name.startswith(VALIDATION) else ""
        weights = [accounts[r].samples.get(phase, 0.0) for r in numbers]
        means[name] = _mean(list(numbers.values()), weights)
    return Merged(
        sums=_sums(accounts), means=means, remark=_remark(broken, absent, odd, len(accounts))
    )


def _sums(accounts: Sequence[Account]) -> dict[str, list[Array]]:
    """Add up the states that every rank offers in the same form."""
    shared = set(accounts[0].states).intersection(*(account.states for account in accounts[1:]))
    sums = {}
    for label in sorted(shared):
        states = [account.states[label] for account in accounts]
        if len({tuple(part.shape for part in state) for state in states}) == 1:
            sums[label] = [np.sum(parts, axis=0) for parts in zip(*states, strict=True)]
    return sums


def _mean(values: Sequence[Array], weights: Sequence[float]) -> Array:
    if all(np.array_equal(value, values[0]) for value in values[1:]):
        return values[0]
    # Who has not counted samples on every rank has no weights at all.
    if min(weights) <= 0.0:
        weights = [1.0] * len(values)
    with np.errstate(invalid="ignore"):  # infinities of both signs: the remark speaks of them
        return np.asarray(np.average(np.stack(values), axis=0, weights=weights))


def _remark(
    broken: Mapping[str, Sequence[int]],
    absent: Mapping[str, Sequence[int]],
    odd: Sequence[str],
    size: int,
) -> str | None:
    parts = []
    if broken:
        listed = "; ".join(f"{name} on {_ranks(ranks, size)}" for name, ranks in broken.items())
        parts.append(
            f"Metrics that are not a number: {listed}. Over all ranks they are not one either. "
            "Look at that rank's data, or lower the learning rate."
        )
    if absent:
        listed = "; ".join(f"{name} on {_ranks(ranks, size)}" for name, ranks in absent.items())
        parts.append(
            f"Metrics that are missing: {listed}. Every rank now has their average over the ranks "
            "that have them. Compile, validate and log alike on every rank."
        )
    if odd:
        parts.append(
            f"Logs that cannot be averaged: {'; '.join(odd)}. Each rank keeps its own. Log numbers "
            "of one shape on every rank."
        )
    return " ".join(parts) or None


def _ranks(ranks: Iterable[int], size: int) -> str:
    listed = [str(rank) for rank in ranks]
    if len(listed) == size:
        return "all ranks"
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _shapes(found: Mapping[int, Array | str]) -> str:
    return ", ".join(
        f"{f'a {value}' if isinstance(value, str) else f'of shape {value.shape}'} on rank {rank}"
        for rank, value in found.items()
    )


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

"""Metrics over all workers in the place of each worker's own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import keras

from farandole.engine import context
from farandole.engine.objects.exchange import allgather_object
from farandole.keras.callbacks.merging import VALIDATION, Account, merge
from farandole.keras.callbacks.metric_states import Reading, flatten, numeric, read, result_of

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

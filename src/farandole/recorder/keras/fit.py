"""Fits: the ends of steps, epochs and metrics, told by Keras's own list of callbacks.

Whatever the callbacks, its methods are called on the main thread, with the step's raw results: on
JAX a program's callbacks may run in a thread of their own, where a study could not end the script.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

from farandole.recorder.keras.feed import Batch, Feed
from farandole.recorder.keras.trained import Trained, model_values, passes_of
from farandole.recorder.optimizers import Rates, has_schedule, keras_rate
from farandole.recorder.recorder import WAITING, Recorder, current

# A data set that is always late must not be taken for a slow call.
_MOST_CALL_S = 0.0005
SEVERAL = f"{WAITING}: several steps run in one execution (steps_per_execution)."


class _Fit:
    """A fit under way."""

    def __init__(self, model: Any, number: int, outer: _Fit | None) -> None:
        self.model: weakref.ref[Any] = weakref.ref(model)
        self.number, self.outer = number, outer
        self.steps = self.steps_in_epoch = 0
        self.epoch_begin_s = self.batch_begin_s = self.last_end_s = time.monotonic()
        self._call_s = _MOST_CALL_S

    def asked_s(self, batch: Batch) -> float:
        """Return when a step that has just begun asked for its batch.

        Its compiled function must be called first. That takes as long as the quickest step so far
        took to have its batch: then it was there already.
        """
        self._call_s = min(self._call_s, batch.end_s - self.batch_begin_s)
        return self.batch_begin_s + self._call_s


class Fits:
    """Follows the fits of one worker."""

    def __init__(self, trained: Trained, feed: Feed) -> None:
        self._trained, self._weights, self._feed = trained, trained.weights, feed
        trained.before_the_end = self._finish
        self._fit: _Fit | None = None
        self._described = False
        self._rates = Rates()
        self._since_update: dict[int, int] = {}
        """Batches of each model that are not yet in an update."""
        self.in_batch = False
        """Whether a training step of Keras's own is under way."""

    def train_begin(self, callbacks: Any) -> None:
        """Take note of a fit."""
        recorder = current()
        if recorder is None:
            return
        # What was fetched so far built the model.
        self._feed.drop()
        self.in_batch = False
        model = callbacks._model
        number = self._weights.follow(model, model_values)
        self._weights.changed(number)
        self._fit = _Fit(model, number, self._fit)
        if has_schedule(model.optimizer):
            self._rates.held(recorder, recorder.steps, keras_rate(model.optimizer))
        if not any(getattr(one, "_farandole_metrics", False) for one in callbacks.callbacks):
            # The last one: it sees what the others have made of an epoch's metrics.
            callbacks.callbacks.append(_metrics_callback())

    def train_end(self, callbacks: Any) -> None:
        """Take note of a fit's end; callbacks may restore other weights from here on."""
        fit, self._fit = self._fit, None
        if fit is not None:
            self._fit = fit.outer
            if fit.steps:
                self._weights.take(fit.number)

    def epoch_begin(self, callbacks: Any) -> None:
        """Take note of an epoch."""
        if self._fit is not None:
            self._feed.drop()
            self._fit.epoch_begin_s = time.monotonic()
            self._fit.steps_in_epoch = 0

    def epoch_end(self, callbacks: Any) -> None:
        """Take note of an epoch's end, which is that of its last step."""
        recorder, fit = current(), self._fit
        if recorder is not None and fit is not None and fit.steps_in_epoch:
            recorder.epoch(fit.epoch_begin_s, fit.last_end_s)
            # Before callbacks set the next epoch's. On JAX it is not known within an epoch.
            rate = keras_rate(callbacks._model.optimizer)
            self._rates.held(recorder, recorder.steps - 1, rate)

    def batch_begin(self, callbacks: Any) -> None:
        """Take note of a step, when all callbacks have done so."""
        if self._fit is not None:
            self.in_batch = True
            self._fit.batch_begin_s = time.monotonic()

    def batch_end(self, callbacks: Any) -> None:
        """Take note of a step's end, before callbacks do.

        Raises:
            StopLaunch: it was the last one, by the study's rule.
        """
        self.in_batch = False
        recorder, fit = current(), self._fit
        if recorder is None or fit is None:
            return
        model = callbacks._model
        batches = self._feed.take(recorder)
        device = self._trained.device(
            recorder, fit.number, model.optimizer, lambda: model_values(model)
        )
        if device is None:
            return  # nothing in it can be trained
        # JAX's; elsewhere weights are there when a call has returned.
        state = getattr(model, "_jax_state", None) or {}
        end = device.end(state.get("trainable_variables") or ())
        if not self._described:
            self._describe(recorder, batches)
        count = len(batches) or int(model.steps_per_execution)
        fit.last_end_s = time.monotonic()
        fit.steps += count
        fit.steps_in_epoch += count
        since = self._since_update.get(fit.number, 0) + count
        updates, self._since_update[fit.number] = divmod(since, passes_of(model.optimizer))
        if updates <= 1:
            together = int(model.steps_per_execution) > 1
            self._tell_batches(recorder, fit, batches, together=together)
            if updates:
                recorder.step(end)
            return
        recorder.note(SEVERAL)
        samples: list[float | None] = [batch.samples for batch in batches]
        if len(samples) != updates:
            known = [count for count in samples if count is not None]
            samples = [sum(known) / updates if known else None] * updates
        recorder.several_steps(fit.batch_begin_s, samples)

    def _finish(self) -> None:
        """Take the weights of a fit that did not come to its end."""
        if self._fit is not None and self._fit.steps:
            self._weights.take(self._fit.number)

    def _tell_batches(
        self, recorder: Recorder, fit: _Fit, batches: list[Batch], *, together: bool
    ) -> None:
        for batch in batches:
            # TensorFlow compiles a fit's first step before it fetches anything.
            compiled = batch.begin_s is None and fit.steps == len(batches)
            if not compiled and not together:
                begin_s = fit.asked_s(batch) if batch.begin_s is None else batch.begin_s
                recorder.data_waited(begin_s, batch.end_s, batch.samples)
            elif batch.samples is not None:
                recorder.trained_on(batch.samples)

    def _describe(self, recorder: Recorder, batches: list[Batch]) -> None:
        self._described = True
        if batches:
            recorder.setup(batch_seen=batches[0].samples)
        if self._feed.dataset_size:
            recorder.setup(dataset_size=self._feed.dataset_size)


def follow(callback_list: Any, fits: Fits, feed: Feed) -> None:
    """Follow keras.callbacks.CallbackList."""
    _before(callback_list, "on_train_begin", fits.train_begin)
    _before(callback_list, "on_train_end", fits.train_end)
    _before(callback_list, "on_epoch_begin", fits.epoch_begin)
    _before(callback_list, "on_epoch_end", fits.epoch_end)
    _before(callback_list, "on_train_batch_end", fits.batch_end)
    _after(callback_list, "on_train_batch_begin", fits.batch_begin)
    for what in ("test", "predict"):
        _before(callback_list, f"on_{what}_begin", lambda callbacks: feed.set_aside())
        _before(callback_list, f"on_{what}_end", lambda callbacks: feed.return_to_training())


def _before(owner: Any, name: str, tell: Callable[[Any], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        tell(self)
        return original(self, *args, **kwargs)

    setattr(owner, name, method)


def _after(owner: Any, name: str, tell: Callable[[Any], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        tell(self)
        return result

    setattr(owner, name, method)


def _metrics_callback() -> Any:
    import keras

    class Metrics(keras.callbacks.Callback):  # type: ignore[misc]
        """Records an epoch's metrics."""

        _farandole_metrics = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            recorder = current()
            if recorder is not None:
                for name, value in (logs or {}).items():
                    _record(recorder, str(name), value, epoch)

    return Metrics()


def _record(recorder: Recorder, name: str, value: Any, epoch: int) -> None:
    try:
        recorder.metric(name, float(value), epoch=float(epoch))
    except (TypeError, ValueError):
        recorder.note(f"The metric {name} is not one number; it was left out.")

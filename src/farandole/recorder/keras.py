"""What Keras does in a worker: fits, and updates in loops of a program's own.

Keras's own classes are followed, not the program's: a callback list tells of epochs and batches on
the main thread, an epoch iterator of data. On JAX a program's callbacks may run in a thread of
their own, where a study could not end the script. Nothing is added to the program's callbacks but
one at their end, which reads an epoch's metrics after all others have changed them.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from farandole.recorder.batches import Loaders
from farandole.recorder.keras_data import Batch, Feed, follow_jax, follow_tensorflow, follow_torch
from farandole.recorder.optimizers import Rates, Rounds, combined, digest_of
from farandole.recorder.recorder import WAITING, Recorder, current, wrap
from farandole.recorder.steps import Later, StreamClock, peak_bytes

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


def keras_rate(optimizer: Any) -> float | None:
    """Return an optimizer's rate as it is now, also where a schedule computes it."""
    import keras

    try:
        return float(keras.ops.convert_to_numpy(optimizer.learning_rate))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None  # the program's own kind of rate


def has_schedule(optimizer: Any) -> bool:
    """Say whether a schedule of Keras's computes an optimizer's rate in each step."""
    import keras

    kind: Any = keras.optimizers.schedules.LearningRateSchedule
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return isinstance(getattr(inner, "_learning_rate", None), kind)


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


def follow_fits(callback_list: Any, fits: Fits, feed: Feed) -> None:
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
    @wrap(owner, name)
    def method(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> Any:
        tell(callbacks)
        return original(callbacks, *args, **kwargs)


def _after(owner: Any, name: str, tell: Callable[[Any], None]) -> None:
    @wrap(owner, name)
    def method(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(callbacks, *args, **kwargs)
        tell(callbacks)
        return result


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


COMPILED = (
    "Steps were not measured: this program compiles its training step by jax.jit, where updates "
    "cannot be seen. Use model.fit or model.train_on_batch, or report figures by "
    "farandole.record(...) and --throughput."
)


class Updates:
    """Follows optimizers and train_on_batch."""

    def __init__(self, trained: Trained, fits: Fits, feed: Feed, loaders: Loaders) -> None:
        self._trained, self._fits, self._feed, self._loaders = trained, fits, feed, loaders
        self._rounds = Rounds()
        self._inside = False
        self._traced: Any = None
        """The function that TensorFlow runs, and perhaps traces, now."""

    def follow_optimizers(self, base: Any, tracing: Callable[[Any], bool]) -> None:
        """Follow `apply` of Keras's optimizers; `tracing` says whether gradients are only names."""

        @wrap(base, "apply")
        def apply(
            original: Any, optimizer: Any, grads: Any, trainable_variables: Any = None
        ) -> Any:
            if self._inside or threading.current_thread() is not threading.main_thread():
                return original(optimizer, grads, trainable_variables)
            grads = list(grads)
            if tracing(grads):
                self._will_be_called(optimizer)
                return original(optimizer, grads, trainable_variables)
            self._inside = True
            begin_s = time.monotonic()
            try:
                result = original(optimizer, grads, trainable_variables)
            finally:
                self._inside = False
            recorder = current()
            if recorder is not None:
                self._updated(recorder, optimizer, begin_s)
            return result

    def follow_batches(self, trainer: Any) -> None:
        """Follow `train_on_batch` of Keras's models."""

        @wrap(trainer, "train_on_batch")
        def train_on_batch(
            original: Any, model: Any, x: Any, y: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            recorder = current()
            if recorder is None:
                return original(model, x, y, *args, **kwargs)
            self._fits.in_batch = True
            try:
                result = original(model, x, y, *args, **kwargs)
            finally:
                self._fits.in_batch = False
            number = self._trained.weights.follow(model, model_values)
            self._trained.weights.changed(number)
            self._trained.device(recorder, number, model.optimizer, lambda: model_values(model))
            self._end_step(recorder, id(model), lambda: (x, y))
            return result

    def follow_functions(self, function: Any) -> None:
        """Follow calls of tf.function's functions."""

        @wrap(function, "__call__")
        def call(original: Any, called: Any, *args: Any, **kwargs: Any) -> Any:
            main = threading.current_thread() is threading.main_thread()
            if self._traced is not None or self._fits.in_batch or not main or current() is None:
                return original(called, *args, **kwargs)
            self._traced = called
            try:
                result = original(called, *args, **kwargs)
            finally:
                self._traced = None
            recorder, mark = current(), called.__dict__.get("_farandole_updates")
            if recorder is not None and mark is not None:
                self._called(recorder, mark, (args, kwargs))
            return result

    def _will_be_called(self, optimizer: Any) -> None:
        if self._fits.in_batch:
            return
        if self._traced is not None:
            mark = self._traced.__dict__.setdefault("_farandole_updates", _Mark(optimizer))
            mark.number = self._trained.weights.follow(optimizer, optimizer_values)
        elif self._trained.backend == "jax" and (recorder := current()) is not None:
            recorder.note(COMPILED)

    def _updated(self, recorder: Recorder, optimizer: Any, begin_s: float) -> None:
        if self._trained.backend != "jax":
            # JAX's calls return before the update is made.
            recorder.optimizer(begin_s, time.monotonic())
        if self._fits.in_batch:
            return
        number = self._trained.weights.follow(optimizer, optimizer_values)
        device = self._trained.device(
            recorder, number, optimizer, lambda: optimizer_values(optimizer)
        )
        if device is not None:
            if self._trained.backend == "jax":
                device.end(optimizer_values(optimizer))
            self._end_step(recorder, id(optimizer), lambda: None)

    def _called(self, recorder: Recorder, mark: _Mark, arguments: Any) -> None:
        optimizer = mark.optimizer()
        if optimizer is None:
            return
        count = int(optimizer.iterations.value)
        updates, mark.updates = count - mark.updates, count
        self._trained.device(recorder, mark.number, optimizer, lambda: optimizer_values(optimizer))
        if updates > 1:
            self._loaders.settle(recorder)
            recorder.several_steps(mark.end_s, [None] * updates)
        elif updates == 1:
            self._end_step(recorder, id(optimizer), lambda: arguments)
        mark.end_s = time.monotonic()

    def _end_step(self, recorder: Recorder, who: int, data: Callable[[], Any]) -> None:
        if not self._rounds.ended_by(who):
            return
        if not self._loaders.settle(recorder):
            given = data()
            if given is not None:
                self._feed.fetched(given, None, time.monotonic())
            batches = self._feed.take(recorder)
            for batch in batches:
                if batch.samples is not None:
                    recorder.assume(batch_seen=batch.samples)
                    recorder.trained_on(batch.samples)
        recorder.step()


class _Mark:
    """What is known of a traced function that trains."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer: weakref.ref[Any] = weakref.ref(optimizer)
        self.number = 0
        self.updates = 0
        self.end_s = time.monotonic()


class Trained:
    """Follows owners of weights: models in fits, optimizers in loops of a program's own."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.weights = Weights()
        self.before_the_end: Callable[[], None] = lambda: None
        """Called before the last fingerprints are taken."""
        self._device: Device | None = None
        self._parameters: dict[int, int] = {}

    def device(
        self, recorder: Recorder, number: int, optimizer: Any, values: Callable[[], Sequence[Any]]
    ) -> Device | None:
        """Return where is trained; tell of an owner, by its number, that makes its first step."""
        if number not in self._parameters:
            found = values()
            if not found:
                return None
            if self._device is None:
                self._device = Device(self.backend, found[0])
                recorder.add_ending(self._ending)
            self._parameters[number] = sum(math.prod(tuple(value.shape)) for value in found)
            # Gradients may be averaged by a tape of Farandole's as well.
            ours = averaging_of(optimizer) is not None or recorder.knows("gradient_bytes_per_step")
            recorder.assume(framework="farandole.keras" if ours else "keras")
            recorder.setup(device=self._device.name, parameters=sum(self._parameters.values()))
        return self._device

    def _ending(self) -> dict[str, Any]:
        self.before_the_end()
        assert self._device is not None
        return {"weights": self.weights.fingerprint(), "peak_gpu_bytes": self._device.peak_bytes()}


def passes_of(optimizer: Any) -> int:
    """Return how many batches make one update."""
    averaging = averaging_of(optimizer)
    ours = 1 if averaging is None else int(averaging.passes)
    return ours * int(getattr(optimizer, "gradient_accumulation_steps", None) or 1)


class Device:
    """Where a backend computes, and when it is done."""

    def __init__(self, backend: str, value: Any) -> None:
        """Look at a tensor of the backend's."""
        self._backend = backend
        if backend == "torch":
            self.name = str(value.device.type)
        elif backend == "tensorflow":
            self.name = "cuda" if "GPU" in str(value.device).upper() else "cpu"
        else:
            platform = next(iter(value.devices())).platform
            self.name = "cuda" if platform == "gpu" else str(platform)
        of_torch = backend == "torch" and self.name == "cuda"
        self._stream = StreamClock() if of_torch else None

    def end(self, values: Sequence[Any]) -> Later | None:
        """Wait until these weights are there, or return what will know when they were.

        On a CPU calls of torch and TensorFlow return when they are done, JAX's at once. On a GPU
        events of torch's stream tell.
        """
        if self._stream is not None:
            return self._stream.reached(self._stream.mark())
        if self._backend == "jax":
            import jax

            wait: Any = jax.block_until_ready
            # Keras keeps them in a list of its own kind, which JAX would pass over.
            wait(list(values))
        elif self._backend == "tensorflow" and self.name != "cpu":
            import tensorflow as tf

            tf.test.experimental.sync_devices()
        return None

    def peak_bytes(self) -> int | None:
        """Return the most memory held on a GPU; None without one, or where it is not known."""
        return peak_bytes() if self._backend == "torch" else None


class Weights:
    """Follows models and optimizers; keeps none of them alive."""

    def __init__(self) -> None:
        self._owners: list[tuple[weakref.ref[Any], Callable[[Any], Sequence[Any]]]] = []
        self._digests: dict[int, bytes] = {}

    def follow(self, owner: Any, values: Callable[[Any], Sequence[Any]]) -> int:
        """Take note of a model or an optimizer that trains such weights; return its number."""
        for number, (known, _) in enumerate(self._owners):
            if known() is owner:
                return number
        self._owners.append((weakref.ref(owner), values))
        return len(self._owners) - 1

    def take(self, number: int) -> None:
        """Take the fingerprint now: what happens to the weights later is not training."""
        known, values = self._owners[number]
        owner = known()
        digest = None if owner is None else _digest(values(owner))
        if digest is not None:
            self._digests[number] = digest

    def changed(self, number: int) -> None:
        """Take note that training goes on."""
        self._digests.pop(number, None)

    def fingerprint(self) -> str | None:
        """Return one fingerprint of all; None if one of them is not known."""
        for number in range(len(self._owners)):
            if number not in self._digests:
                self.take(number)
        if not self._owners or len(self._digests) < len(self._owners):
            return None
        return combined(self._digests)


def model_values(model: Any) -> list[Any]:
    """Return a model's trainable weights, those left to each worker excepted."""
    # On JAX a fit keeps them to itself until its epoch ends.
    state = getattr(model, "_jax_state", None)
    if state and not model._jax_state_synced:
        values = list(state["trainable_variables"])
    else:
        values = [variable.value for variable in model.trainable_variables]
    return _shared(values, model.trainable_variables, model.optimizer)


def optimizer_values(optimizer: Any) -> list[Any]:
    """Return the weights that an optimizer trains, those left to each worker excepted."""
    variables = list(optimizer._trainable_variables)
    return _shared([variable.value for variable in variables], variables, optimizer)


def _shared(values: list[Any], variables: Sequence[Any], optimizer: Any) -> list[Any]:
    averaging = averaging_of(optimizer)
    if averaging is None:
        return values
    local = averaging.is_local(variables)
    return [value for value, own in zip(values, local, strict=True) if not own]


def averaging_of(optimizer: Any) -> Any:
    """Return how a wrapped optimizer averages; None for one that is not wrapped."""
    return getattr(optimizer, "_farandole", None)


def _digest(values: Sequence[Any]) -> bytes | None:
    import keras
    import numpy as np

    arrays = (np.ascontiguousarray(keras.ops.convert_to_numpy(value)) for value in values)
    return digest_of(array.reshape(-1).view(np.uint8) for array in arrays)


def install(loaders: Loaders) -> None:
    """Follow Keras in this process; Keras 2, and backends that do not train, are let be."""
    keras: Any = sys.modules["keras"]
    if int(str(getattr(keras, "__version__", "0")).partition(".")[0]) < 3:
        return
    backend = str(keras.backend.backend())
    if backend not in ("torch", "tensorflow", "jax"):
        return
    feed, trained = Feed(), Trained(backend)
    fits = Fits(trained, feed)
    updates = Updates(trained, fits, feed, loaders)
    follow_fits(keras.callbacks.CallbackList, fits, feed)
    updates.follow_batches(keras.Model)
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    if backend == "torch":
        from keras.src.backend.torch.trainer import TorchEpochIterator

        follow_torch(TorchEpochIterator, feed, loaders)
        updates.follow_optimizers(BaseOptimizer, _torch_traces)
    elif backend == "jax":
        from keras.src.backend.jax.trainer import JAXEpochIterator

        follow_jax(JAXEpochIterator, feed)
        updates.follow_optimizers(BaseOptimizer, _jax_traces)
    else:
        import tensorflow as tf
        from keras.src.backend.tensorflow.trainer import TFEpochIterator

        follow_tensorflow(TFEpochIterator, feed)
        updates.follow_functions(type(tf.function(lambda: None)))
        updates.follow_optimizers(BaseOptimizer, _tensorflow_traces)


def _torch_traces(gradients: Sequence[Any]) -> bool:
    import torch

    return torch.compiler.is_compiling()


def _jax_traces(gradients: Sequence[Any]) -> bool:
    import jax

    return any(isinstance(gradient, jax.core.Tracer) for gradient in gradients)


def _tensorflow_traces(gradients: Sequence[Any]) -> bool:
    import tensorflow as tf

    return not tf.executing_eagerly()

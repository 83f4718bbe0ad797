"""Loops of a program's own: updates that no fit of Keras's makes.

An update on real values ends a step. While TensorFlow traces a function, an update is only written
down; from then on each call of that function is asked how many updates it has made. What JAX
compiles cannot be followed: that is said.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from farandole.recorder.keras.feed import Feed
from farandole.recorder.keras.fit import Fits
from farandole.recorder.keras.trained import Trained, model_values, optimizer_values
from farandole.recorder.loaders import Loaders
from farandole.recorder.optimizers import Rounds
from farandole.recorder.recorder import Recorder, current

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
        """Follow `apply` of Keras's optimizers.

        Args:
            base: BaseOptimizer.
            tracing: says whether gradients are only names of what will be computed.
        """
        original = base.apply

        @functools.wraps(original)
        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
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

        base.apply = apply

    def follow_batches(self, trainer: Any) -> None:
        """Follow `train_on_batch` of Keras's models."""
        original = trainer.train_on_batch

        @functools.wraps(original)
        def train_on_batch(model: Any, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
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

        trainer.train_on_batch = train_on_batch

    def follow_functions(self, function: Any) -> None:
        """Follow calls of tf.function's functions."""
        original = function.__call__

        @functools.wraps(original)
        def __call__(called: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
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

        function.__call__ = __call__

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

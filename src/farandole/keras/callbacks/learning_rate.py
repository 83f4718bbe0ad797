"""Learning rates that change with epochs and batches: schedules and warm-up."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras

from farandole import recipes
from farandole.engine import context
from farandole.errors import UsageError
from farandole.recipes import Recipe

# Optimizers of Keras whose velocity has the learning rate in it, and what they call it.
_VELOCITIES = ((keras.optimizers.SGD, "momentums"), (keras.optimizers.RMSprop, "_momentums"))


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Set the learning rate to a multiple of `initial_lr` that depends on the epoch.

    The rate is in the logs of each epoch as `learning_rate`.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: float = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Prepare.

        Args:
            initial_lr: what is multiplied.
            multiplier: a number, or a function of the epoch, which counts from 0; it is a whole
                number with staircase, and has the part of the epoch that is done without.
            start_epoch: the first epoch in which the rate is set.
            end_epoch: the first epoch in which it is not set any more.
            staircase: change the rate at the beginning of epochs only; with a number as
                multiplier it always does.
            momentum_correction: when the rate changes, scale the velocity of SGD and RMSprop with
                momentum by as much (Goyal et al. 2017, https://arxiv.org/abs/1706.02677). Horovod
                changes the momentum for one batch, which is the same but for Nesterov's look
                ahead; here the momentum is part of what TensorFlow and JAX have compiled.
            steps_per_epoch: batches per epoch; by default what `fit` knows. Without staircase only.
        """
        super().__init__()
        check_rate(initial_lr, "initial_lr", "0.01 * hvd.size()")
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.plan = Plan(
            initial_lr=float(initial_lr),
            multiplier=multiplier if callable(multiplier) else partial(_constant, multiplier),
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            staircase=staircase or not callable(multiplier),
        )
        self.current_epoch = 0
        self._steps: int | None = None
        self._rate: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that the rate can be set."""
        _check_optimizer(self.model.optimizer, type(self).__name__)
        self._rate = None
        if not self.plan.staircase:
            self._steps = self.steps_per_epoch or (self.params or {}).get("steps")
            if not self._steps:
                raise UsageError(
                    f"{type(self).__name__} changes the learning rate with every batch, and fit "
                    "does not know how many there are in an epoch. Give steps_per_epoch=."
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the rate of this batch."""
        rate = self.plan.rate(self.current_epoch, batch, self._steps)
        # Within an epoch a rate that has not changed must cost nothing: on JAX `self.model` takes
        # all variables out of the compiled step and puts them back. Between epochs others (say,
        # ReduceLROnPlateau) may have changed it.
        if rate is None or (batch and rate == self._rate):
            return
        self._rate = rate
        self._set(self.model.optimizer, rate)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the rate into the logs."""
        if logs is not None:
            logs["learning_rate"] = _rate_of(self.model.optimizer)

    def _set(self, optimizer: Any, rate: float) -> None:
        old = _rate_of(optimizer)
        optimizer.learning_rate = rate
        factor = momentum_correction(old, rate)
        if self.momentum_correction and factor != 1.0:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * factor)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raise the learning rate from `initial_lr / size` to `initial_lr`, batch by batch.

    Large batches at the full rate can throw a fresh model off (Goyal et al. 2017,
    https://arxiv.org/abs/1706.02677). With `initial_lr = hvd.size() * rate` training begins at the
    rate of one worker.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Prepare.

        Args:
            initial_lr: the rate after warm-up.
            warmup_epochs: how long it takes; 0 leaves the optimizer's rate alone.
            momentum_correction: as of LearningRateScheduleCallback.
            steps_per_epoch: batches per epoch; by default what `fit` knows.
            verbose: 1 to let rank 0 say when it has ended.
        """
        if not (math.isfinite(warmup_epochs) and warmup_epochs >= 0):
            raise UsageError(f"warmup_epochs={warmup_epochs!r}: it must be 0 or more.")
        super().__init__(
            initial_lr,
            self._multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the rate into the logs; say so when warm-up has ended."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch < self.warmup_epochs <= epoch + 1 and context.rank() == 0:
            sys.stdout.write(
                f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to "
                f"{self.plan.initial_lr:g}.\n"
            )

    def _multiplier(self, epoch: float) -> float:
        assert self._steps is not None
        return warmup_multiplier(
            epoch,
            size=context.size(),
            warmup_epochs=self.warmup_epochs,
            steps_per_epoch=self._steps,
        )


def _constant(multiplier: float, epoch: float) -> float:
    return float(multiplier)


def check_rate(rate: Any, name: str, example: str) -> None:
    """Raise UsageError if an argument of this name is no learning rate."""
    try:
        good = math.isfinite(rate) and rate > 0
    except TypeError:
        good = False
    if not good:
        raise UsageError(f"{name}={rate!r}: it must be a number above 0, such as {example}.")


def _check_optimizer(optimizer: Any, who: str) -> None:
    if hasattr(optimizer, "optimizers"):
        raise UsageError(
            f"{who} sets one learning rate, and a MultiOptimizer has several. Leave {who} out, and "
            "set the rates of its optimizers."
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(getattr(inner, "_learning_rate", None), keras.Variable):
        kind = type(getattr(inner, "_learning_rate", None)).__name__
        raise UsageError(
            f"{who} sets the learning rate, and the optimizer's learning_rate is a {kind}, which "
            f"sets it, too. Give the optimizer a number, or leave {who} out."
        )


def _rate_of(optimizer: Any) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _velocities(optimizer: Any) -> list[Any]:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    for kind, name in _VELOCITIES:
        if isinstance(inner, kind) and inner.built and inner.momentum > 0:
            return list(getattr(inner, name))
    return []


Multiplier = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which learning rate each batch gets."""

    initial_lr: float
    multiplier: Multiplier
    start_epoch: float = 0
    end_epoch: float | None = None
    staircase: bool = True
    """Whether the rate changes from epoch to epoch only, else with every batch."""

    def rate(self, epoch: int, batch: int, steps_per_epoch: int | None) -> float | None:
        """Return the rate of a batch, or None if it stays what it is."""
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return None
        if self.staircase:
            return self.initial_lr * self.multiplier(epoch) if batch == 0 else None
        assert steps_per_epoch is not None
        return self.initial_lr * self.multiplier(epoch + batch / steps_per_epoch)


def warmup_multiplier(
    epoch: float, *, size: int, warmup_epochs: float, steps_per_epoch: int
) -> float:
    """Return the share of the full rate in warm-up: from 1 / size to 1, in a straight line.

    It is that of the batch's end, so that the last batch of warm-up has the full rate.
    """
    done = min((epoch + 1.0 / steps_per_epoch) / warmup_epochs, 1.0)
    # A sum of batches' shares that is 1 but for rounding is 1.
    done = 1.0 if math.isclose(done, 1.0) else done
    return (1.0 + done * (size - 1)) / size


def momentum_correction(old_rate: float, new_rate: float) -> float:
    """Return by what a velocity that has the old rate in it is multiplied for the new one."""
    return new_rate / old_rate if old_rate > 0.0 else 1.0


class RecipeCallback(LearningRateScheduleCallback):
    """Set the learning rate of every batch by a recipe.

    The rate is assigned when the recipe changes it. So what other callbacks make of it (say,
    ReduceLROnPlateau) stays while the recipe keeps it constant.
    """

    def __init__(
        self,
        recipe: str | Recipe,
        base_lr: float,
        epochs: int | None = None,
        *,
        workers: float | None = None,
        decay: str = "constant",
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Prepare.

        Args:
            recipe: its name, or one of your own.
            base_lr: the rate that is good for one worker.
            epochs: how many there are, by `Recipe.epochs`; by default those of `fit`.
            workers: how many times larger than one worker's the global batch is; by default
                `hvd.size()`. Give 1 where workers share out a batch of fixed size.
            decay: "constant", "cosine" or "step".
            momentum_correction: as of LearningRateScheduleCallback.
            steps_per_epoch: batches per epoch; by default what `fit` knows. Not needed where the
                rate never changes.
            verbose: 1 to let rank 0 say what the rate does.
        """
        check_rate(base_lr, "base_lr", "0.01")
        self.recipe = recipes.recipe(recipe)
        if decay not in recipes.DECAYS:
            raise UsageError(f"There is no decay {decay!r}. There are {', '.join(recipes.DECAYS)}.")
        super().__init__(
            base_lr,
            self._multiplier,
            staircase=self.recipe.constant(decay),
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.epochs, self.workers, self.decay = epochs, workers, decay
        self.verbose = verbose

    def on_train_begin(self, logs: Any = None) -> None:
        """Find out how long training is, and say what the rate does."""
        super().on_train_begin(logs)
        if self.verbose and context.rank() == 0:
            sys.stdout.write(f"{self.describe()}\n")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the rate of this batch."""
        if self.plan.rate(self.current_epoch, batch, self._steps) != self._rate:
            super().on_train_batch_begin(batch, logs)

    def describe(self) -> str:
        """Say in words what the rate does."""
        base = self.plan.initial_lr
        return self.recipe.describe(base, self._workers(), self._epochs(), decay=self.decay)

    def _multiplier(self, epoch: float) -> float:
        return self.recipe.rate(1.0, self._workers(), epoch, self._epochs(), decay=self.decay)

    def _workers(self) -> float:
        return float(context.size() if self.workers is None else self.workers)

    def _epochs(self) -> int:
        epochs = self.epochs or (self.params or {}).get("epochs")
        if not epochs:
            raise UsageError(
                "RecipeCallback needs the number of epochs, and fit does not know it. Give epochs=."
            )
        return int(epochs)

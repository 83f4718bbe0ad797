"""Learning rates by recipe."""

from __future__ import annotations

import sys
from typing import Any

from farandole import recipes
from farandole.engine import context
from farandole.errors import UsageError
from farandole.keras.callbacks.learning_rate import LearningRateScheduleCallback, check_rate
from farandole.recipes import Recipe


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

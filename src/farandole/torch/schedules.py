"""Learning rates by recipe, as an ordinary scheduler of torch."""

from __future__ import annotations

from typing import Any

import torch

from farandole import recipes
from farandole.engine import context
from farandole.errors import UsageError
from farandole.recipes import Recipe


class RecipeScheduler(torch.optim.lr_scheduler.LRScheduler):
    """Set the learning rate of every batch by a recipe; step it once per batch.

    torch's optimizers keep the rate out of their momentum, so that none has to be corrected.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        recipe: str | Recipe,
        *,
        steps_per_epoch: int,
        epochs: int,
        workers: float | None = None,
        decay: str = "constant",
        last_epoch: int = -1,
    ) -> None:
        """Set the rate of the first batch.

        Args:
            optimizer: wrapped or not, with the rates that are good for one worker: they are not
                multiplied by the number of workers before. Groups keep their ratios.
            recipe: its name, or one of your own.
            steps_per_epoch: updates per epoch of this worker, `len(loader)` as a rule.
            epochs: how many there are, by `Recipe.epochs`.
            workers: how many times larger than one worker's the global batch is; by default
                `hvd.size()`. Give 1 where workers share out a batch of fixed size.
            decay: "constant", "cosine" or "step".
            last_epoch: the number of the last step, as torch's schedulers call it.

        Example:
            scheduler = hvd.RecipeScheduler(
                optimizer, "warmup", steps_per_epoch=len(loader), epochs=10
            )
        """
        for name, value in (("steps_per_epoch", steps_per_epoch), ("epochs", epochs)):
            if value < 1:
                raise UsageError(f"{name}={value!r}: it must be 1 or more.")
        self._recipe = recipes.recipe(recipe)
        self._steps_per_epoch, self._epochs, self._decay = steps_per_epoch, epochs, decay
        self._workers = float(context.size() if workers is None else workers)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | torch.Tensor]:
        """Return the rate of each group for the next batch."""
        epoch = self.last_epoch / self._steps_per_epoch
        return [
            self._recipe.rate(float(base), self._workers, epoch, self._epochs, decay=self._decay)
            for base in self.base_lrs
        ]

    def describe(self) -> str:
        """Say in words what the rate does."""
        base = float(self.base_lrs[0])
        return self._recipe.describe(base, self._workers, self._epochs, decay=self._decay)

    def state_dict(self) -> dict[str, Any]:
        """Return how far training is; recipe and workers are those of the scheduler that loads."""
        return {
            "epochs_done": self.last_epoch / self._steps_per_epoch,
            "base_lrs": list(self.base_lrs),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there, also with another number of workers and of steps per epoch."""
        self.base_lrs = list(state_dict["base_lrs"])
        self.last_epoch = round(state_dict["epochs_done"] * self._steps_per_epoch)
        # What torch counts to tell whether a scheduler's step() came before the optimizer's.
        self._step_count = self.last_epoch + 1
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            # A rate that is a tensor is part of what torch has compiled.
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = self.get_lr()

"""Learning rates as functions of the epoch: pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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

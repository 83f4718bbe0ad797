"""What is trained in this worker: which models and optimizers, where, with how many parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from farandole.recorder.keras.devices import KINDS, Device
from farandole.recorder.keras.weights import Weights, averaging_of
from farandole.recorder.recorder import Recorder


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
        """Return where is trained; tell of an owner that makes its first step.

        Args:
            recorder: is told.
            number: of the owner, by `weights`.
            optimizer: that trains it.
            values: returns its weights.
        """
        if number not in self._parameters:
            found = values()
            if not found:
                return None
            if self._device is None:
                self._device = KINDS[self.backend](found[0])
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

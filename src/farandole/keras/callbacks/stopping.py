"""Training that ends after the same epoch on every worker."""

from __future__ import annotations

from typing import Any

import keras

from farandole.engine import context
from farandole.engine.objects.exchange import allgather_object


class StopTogetherCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Stop every worker at the end of an epoch in which a callback has stopped one of them.

    Put it last: it looks at what callbacks before it have decided. A worker that is stopped in the
    middle of an epoch is too early for this, and an error on every rank.
    """

    def __init__(self) -> None:
        """Prepare."""
        super().__init__()
        self.stopped_by: list[int] = []
        """Ranks that wanted to stop."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop if any rank stops."""
        if context.size() == 1:
            return
        model = self.model
        wishes = allgather_object(bool(model.stop_training), name="keras.stop_training")
        self.stopped_by = [rank for rank, wish in enumerate(wishes) if wish]
        model.stop_training = bool(self.stopped_by)

"""Tells sharded data which epoch `fit` is in."""

from __future__ import annotations

from typing import Any

import keras


class Following(keras.callbacks.Callback):  # type: ignore[misc]
    """Begins each epoch of the data with fit's own number, so that resuming needs no other word."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._data = data

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Pass the number on, before the first batch is asked for."""
        self._data.set_epoch(epoch)

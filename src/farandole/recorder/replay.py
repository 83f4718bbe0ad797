"""One worker in the place of several: its batches are as large as all of theirs together."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from farandole.recorder.detail import REPLAY
from farandole.recorder.recorder import current, when_opened, wrap


def _times() -> int:
    text = os.environ.get(REPLAY, "")
    return int(text) if text.isdecimal() else 1


def install_torch(torch: Any) -> None:
    """Let every DataLoader of torch give the batches of so many workers."""
    times = _times()
    if times < 2:
        return

    @wrap(torch.utils.data.DataLoader, "__init__")
    def init(
        original: Callable[..., None],
        loader: Any,
        dataset: Any,
        batch_size: int | None = 1,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("batch_sampler") is not None or batch_size is None:
            when_opened(lambda recorder: recorder.note(_SAME_BATCH))
        else:
            batch_size *= times
        original(loader, dataset, batch_size, *args, **kwargs)


_SAME_BATCH = "The replay has the batches of one worker: the loader takes them from the script."


def install_keras(keras: Any) -> None:
    """Let fit make the batches of so many workers."""
    times = _times()
    if times < 2:
        return

    @wrap(keras.Model, "fit")
    def fit(
        original: Callable[..., Any],
        model: Any,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if hasattr(x, "shape"):
            batch_size = (batch_size or 32) * times
        elif (recorder := current()) is not None:
            recorder.note(_SAME_BATCH)
        return original(model, x, y, batch_size, *args, **kwargs)

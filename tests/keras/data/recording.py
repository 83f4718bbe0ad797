"""A model that writes down which samples `fit` and `evaluate` hand to it, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

Steps = list[list[int]]


class Recording(keras.Model):  # type: ignore[misc]
    """Takes batches (x, ...) where x[:, 0] is a sample's number; trains nothing."""

    def __init__(self, seen: Callable[[str, list[int]], None]) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self._seen = seen

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def make_train_function(self, force: bool = False) -> None:
        self.train_function = self._stepping("train")

    def make_test_function(self, force: bool = False) -> None:
        self.test_function = self._stepping("test")

    def _stepping(self, kind: str) -> Callable[..., Any]:
        backend = keras.backend.backend()

        def step(*given: Any) -> Any:
            batch = given[0][0] if backend == "torch" else next(given[-1])
            self._seen(kind, [int(number) for number in batch[0][:, 0]])
            logs = {"loss": 0.0}
            return (logs, given[0]) if backend == "jax" else logs

        return step


class Seen(keras.callbacks.Callback):  # type: ignore[misc]
    """The samples of each epoch of training, and of each evaluation, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[Steps] = []
        self.tests: list[Steps] = []
        self.losses: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append([])

    def on_test_begin(self, logs: Any = None) -> None:
        self.tests.append([])

    def note(self, kind: str, numbers: list[int]) -> None:
        (self.epochs if kind == "train" else self.tests)[-1].append(numbers)


def fitted(data: Any, *callbacks: Any, **how: Any) -> Seen:
    """Fit a new, unbuilt model: Keras then looks at a first batch before it trains."""
    seen = Seen()
    model = Recording(seen.note)
    model.compile(optimizer="sgd", loss="mse")
    model.fit(data, callbacks=[*callbacks, seen], verbose=0, **how)
    return seen


def numbered(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples that carry their number in x[:, 0] and in y."""
    x = np.zeros((length, 3), "float32")
    x[:, 0] = np.arange(length)
    return x, np.arange(length, dtype="float32")


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """A program's own dataset: batch i has samples 4 i to 4 i + 3."""

    def __init__(self, length: int, **loading: Any) -> None:
        super().__init__(**loading)
        self.length = length
        self.began = self.ended = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        x, y = numbered(4 * self.length)
        return x[4 * index : 4 * index + 4], y[4 * index : 4 * index + 4]

    def on_epoch_begin(self) -> None:
        self.began += 1

    def on_epoch_end(self) -> None:
        self.ended += 1

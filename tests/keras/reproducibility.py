"""Checks of one seed for a whole training, with dropout."""

from __future__ import annotations

import random

import keras
import numpy as np
import pytest

import farandole.keras as hvd
from farandole.errors import UsageError


def trained(seed: int) -> list[float]:
    """Return the losses of each epoch, and the sum of all weights, of one training."""
    hvd.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Dropout(0.25),
            keras.layers.Flatten(),
            keras.layers.Dense(16, "tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(3, "softmax"),
        ]
    )
    data = np.random.default_rng(1)
    x = data.normal(size=(96, 8, 8, 1)).astype("float32")
    y = data.integers(0, 3, 96)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, "sparse_categorical_crossentropy")
    history = model.fit(
        hvd.shard((x, y), 8, seed=seed),
        epochs=2,
        verbose=0,
        callbacks=hvd.callbacks.standard(),
    )
    return [*history.history["loss"], *(float(w.sum()) for w in model.get_weights())]


def check_one_seed_gives_one_training() -> None:
    first = trained(1)
    assert trained(1) == first, "to the last bit"
    assert trained(2) != first
    assert len({tuple(each) for each in hvd.allgather_object(first)}) == 1


def check_ranks_drop_other_units() -> None:
    def dropped(seed: int) -> list[float]:
        hvd.set_random_seed(seed)
        layer = keras.layers.Dropout(0.5)
        # Twice: the second draws on.
        ones = np.ones((1, 64), "float32")
        return [
            float(value)
            for _ in range(2)
            for value in np.ravel(keras.ops.convert_to_numpy(layer(ones, training=True)))
        ]

    mine = dropped(3)
    assert dropped(3) == mine
    everyone = hvd.allgather_object(mine)
    assert len({tuple(each) for each in everyone}) == hvd.size(), "each drops its own units"
    assert mine[:64] != mine[64:]


def check_what_is_seeded() -> None:
    def drawn(seed: int) -> tuple[float, ...]:
        hvd.set_random_seed(seed)
        pythons, numpys = random.random(), float(np.random.random())
        # Without a seed of its own: from Keras' generator for all.
        return pythons, numpys, float(keras.ops.convert_to_numpy(keras.random.uniform(())))

    assert drawn(5) == drawn(5)
    assert all(one != other for one, other in zip(drawn(5), drawn(6), strict=True))
    if hvd.rank() == 0:
        alone = random.Random(5).random()
        assert drawn(5)[0] == alone, "as a single process with that seed"


def check_what_is_no_seed() -> None:
    for wrong in (-1, 1 << 32, 1.5, "1", None):
        with pytest.raises(UsageError, match="integer from 0 to"):
            hvd.set_random_seed(wrong)  # type: ignore[arg-type]

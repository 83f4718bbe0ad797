"""One worker alone: nothing is exchanged, and logs are what they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from farandole.engine import context
from farandole.errors import NotInitializedError
from farandole.keras.callbacks import MetricAverageCallback, standard
from tests.keras.seeding import seed_weights

# Keras on torch takes tensors for arrays in a way that NumPy warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

ONES = np.ones((4, 1), "float32")


@pytest.fixture
def _alone() -> Iterator[None]:
    context.init()
    yield
    context.shutdown()


def history(callbacks: list[Any]) -> dict[str, list[float]]:
    seed_weights(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    found: dict[str, list[float]] = model.fit(
        ONES, ONES, epochs=2, validation_data=(ONES, ONES), verbose=0, callbacks=callbacks
    ).history
    return found


@pytest.mark.usefixtures("_alone")
def test_one_worker_logs_what_it_would_log_without() -> None:
    assert history([MetricAverageCallback()]) == history([])


@pytest.mark.usefixtures("_alone")
def test_the_standard_set_changes_nothing_for_one_worker() -> None:
    assert history(standard()) == history([])


def test_without_init_there_is_an_error() -> None:
    with pytest.raises(NotInitializedError):
        history([MetricAverageCallback()])

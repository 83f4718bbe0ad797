"""Checks of a clean stop: rank 0 asks the launcher for one, as a scheduler does, and all leave.

Only the first of them waits for the launcher; whoever trains on afterwards is to leave at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import keras
import numpy as np
import pytest

import farandole.keras as hvd
from tests.keras.backends.right_answers import (
    BATCH,
    _own_step,
    check_unequal_steps_are_named_at_once,
    model,
    weights,
)
from tests.keras.seeding import seed_weights

LONG = 1_000_000


def data() -> tuple[np.ndarray, np.ndarray]:
    """Three batches, other ones on each rank."""
    random = np.random.default_rng(hvd.rank())
    shape = (3 * BATCH, 6)
    return random.normal(size=shape).astype("float32"), np.ones((3 * BATCH, 2), "float32")


def ask() -> None:
    if hvd.rank() == 0:
        os.kill(os.getppid(), signal.SIGUSR1)


class Asking(keras.callbacks.Callback):
    """Asks in the midst of training."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if epoch == 2:
            ask()


@contextmanager
def left_together(net: keras.Model) -> Iterator[None]:
    """Expect that all ranks leave after the same update, with weights that can be saved."""
    with pytest.raises(SystemExit) as left:
        yield
    assert left.value.code == 0
    mine = (int(net.optimizer.iterations), weights(net).tobytes())
    assert hvd.allgather_object(mine) == [mine] * hvd.size()
    assert np.isfinite(weights(net)).all()


def compiled(net: keras.Model, passes: int = 1, **options: object) -> keras.Model:
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01), backward_passes_per_step=passes
    )
    net.compile(optimizer, "mse", **options)
    return net


def fit(net: keras.Model) -> None:
    x, y = data()
    with left_together(net):
        net.fit(x, y, batch_size=BATCH, epochs=LONG, verbose=0, callbacks=[Asking()])


def check_a_fit() -> None:
    """The first one: steps that failed on some ranks before do not count on any."""
    if hvd.size() > 1:
        check_unequal_steps_are_named_at_once()
    net = compiled(model())
    fit(net)
    before = int(net.optimizer.iterations)
    assert before > 0
    # It goes on from where it was left, and all leave it again.
    fit(net)
    assert int(net.optimizer.iterations) > before


def check_a_fit_that_is_not_compiled() -> None:
    fit(compiled(model(), run_eagerly=True))


def check_a_fit_of_several_steps_in_one_execution() -> None:
    fit(compiled(model(), steps_per_execution=3))


def check_a_fit_of_several_passes_per_step() -> None:
    fit(compiled(model(), passes=2))


def check_a_train_step_of_ones_own() -> None:
    """On JAX it is compiled as a whole, and its calls return before they are done."""

    class Own(keras.Sequential):
        def train_step(self, *arguments: object) -> object:
            return super().train_step(*arguments)

    seed_weights(3)
    fit(compiled(Own([keras.Input((6,)), keras.layers.Dense(2)])))


def check_train_on_batch() -> None:
    net, (x, y) = compiled(model()), data()
    until_left(net, lambda: net.train_on_batch(x, y))


def check_a_loop_of_ones_own() -> None:
    net, (x, y) = compiled(model()), data()
    until_left(net, lambda: _own_step(net, net.optimizer, x, y))


def until_left(net: keras.Model, step: Callable[[], object]) -> None:
    ask()
    with left_together(net):
        for _ in range(LONG):
            step()

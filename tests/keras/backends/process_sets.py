"""Some of the workers train together, by their optimizer's process_set; the others train alone.

Variables that are left to each worker are here, too: those are a set of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import numpy as np

import farandole.keras as hvd
from tests.keras.seeding import seed_weights

BATCH, STEPS = 8, 5


@contextmanager
def some() -> Iterator[hvd.ProcessSet]:
    """The first and the last of several ranks; of two, the last alone."""
    made = hvd.add_process_set([0, hvd.size() - 1] if hvd.size() > 2 else [1])
    yield made
    assert hvd.remove_process_set(made)


def trained(optimizer: keras.optimizers.Optimizer, ranks: list[int]) -> np.ndarray:
    """Train on the data of these ranks; return all weights."""
    x = np.stack(
        [np.random.default_rng(r).normal(size=(STEPS, BATCH, 6)).astype("float32") for r in ranks],
        axis=1,
    ).reshape(-1, 6)
    seed_weights(3)
    net = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
    )
    net.compile(optimizer, "mse")
    net.fit(x, x[:, :1], batch_size=BATCH * len(ranks), shuffle=False, verbose=0)
    return np.concatenate([np.ravel(w) for w in net.get_weights()])


def check_who_is_in_it_trains_together() -> None:
    with some() as together:
        ranks = together.ranks if together.included() else [hvd.rank()]
        assert ranks is not None
        expected = trained(keras.optimizers.SGD(0.05, 0.9), ranks)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, 0.9), process_set=together)
        found = trained(optimizer, [hvd.rank()])
        assert np.linalg.norm(found - expected) < 1e-6 * np.linalg.norm(expected)
        hvd.barrier(hvd.global_process_set)


def check_several_passes() -> None:
    with some() as together:
        ranks = together.ranks if together.included() else [hvd.rank()]
        assert ranks is not None
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), backward_passes_per_step=2, process_set=together
        )
        variable = keras.Variable([0.0])
        for _ in range(2):
            optimizer.apply([keras.ops.convert_to_tensor([hvd.rank() + 1.0])], [variable])
        found = keras.ops.convert_to_numpy(variable).tolist()
        assert np.allclose(found, [-2 * (np.mean(ranks) + 1.0)])


def check_local_variables_over_several_passes() -> None:
    """Every batch counts, as in Horovod, and not only the last one before an update."""
    shared, own = keras.Variable([0.0]), keras.Variable([0.0])
    for average in (False, True):
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        )
        optimizer.register_local_var(own)
        for variable in (shared, own):
            variable.assign([0.0])
        for batch in (1.0, 2.0):
            slope = keras.ops.convert_to_tensor([batch * (hvd.rank() + 1)])
            optimizer.apply([slope, slope], [own, shared])
        total = 1.5 if average else 3.0
        found = [float(keras.ops.convert_to_numpy(v)[0]) for v in (own, shared)]
        mean = (hvd.size() + 1) / 2
        assert np.allclose(found, [-total * (hvd.rank() + 1) / hvd.size(), -total * mean]), found

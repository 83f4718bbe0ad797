"""Checks of sharded data on real ranks, that backends have to pass."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import keras
import numpy as np
import pytest

import farandole.keras as hvd
from farandole.errors import UsageError
from farandole.keras.data import shard
from farandole.keras.split import order
from tests.keras.data.recording import Batches, Seen, Steps, fitted, numbered
from tests.keras.seeding import seed_weights

LENGTH, BATCH, SEED = 61, 4, 3


def of_all(mine: Any) -> list[Any]:
    return hvd.allgather_object(mine)


def shared(data: Any, **how: Any) -> list[list[Steps]]:
    """Fit; return every rank's epochs."""
    seen: Seen = fitted(data, **how)
    return of_all(seen.epochs)


def flat(steps: Steps) -> list[int]:
    return [number for step in steps for number in step]


def assert_agreed(epochs: list[list[Steps]], first: int = 0) -> None:
    """Each step of all ranks together is a slice of the order that the formula gives."""
    used = LENGTH - LENGTH % hvd.size()
    for place, ranks in enumerate(zip(*epochs, strict=True)):
        whole = order(LENGTH, seed=SEED, epoch=first + place)[:used].tolist()
        assert len({len(steps) for steps in ranks}) == 1, "unequal steps"
        large = BATCH * hvd.size()
        for step, parts in enumerate(zip(*ranks, strict=True)):
            assert sorted(flat(list(parts))) == sorted(whole[step * large : (step + 1) * large])


def refused(words: tuple[str, ...], *arguments: Any, **named: Any) -> None:
    with pytest.raises(UsageError) as error:
        shard(*arguments, **named)
    assert all(word in str(error.value) for word in words), error.value


def check_arrays() -> None:
    data = shard(numbered(LENGTH), BATCH, seed=SEED)
    epochs = shared(data, epochs=3)
    assert_agreed(epochs)
    assert (data.dropped, data.padded, data.steps) == (LENGTH % hvd.size(), 0, len(epochs[0][0]))


def check_a_resumed_fit_takes_the_same_order() -> None:
    data = shard(numbered(LENGTH), BATCH, seed=SEED)
    assert_agreed(shared(data, epochs=4, initial_epoch=2), first=2)


def check_fit_in_a_loop_takes_another_order_each_time() -> None:
    data = shard(numbered(LENGTH), BATCH, seed=SEED)
    for turn in range(3):
        assert_agreed(shared(data, epochs=1), first=turn)


def check_prepared_batches_are_those_of_their_samples() -> None:
    asked: list[tuple[int, list[int]]] = []

    def prepare(batch: Any, chosen: Any, epoch: int) -> Any:
        x, y = batch
        assert x[:, 0].tolist() == y.tolist() == chosen.tolist()
        asked.append((epoch, chosen.tolist()))
        return x + 0, y

    data = shard(numbered(LENGTH), BATCH, seed=SEED, prepare=prepare)
    epochs = shared(data, epochs=2)
    assert_agreed(epochs)
    mine = [(epoch, step) for epoch, steps in enumerate(epochs[hvd.rank()]) for step in steps]
    assert [one for one in asked if one[0] < 2 and one in mine][-len(mine) :] == mine
    data.close()


def check_a_dataset_of_batches() -> None:
    data = shard(Batches(9), seed=SEED)
    epochs = shared(data, epochs=2)
    for ranks in zip(*epochs, strict=True):
        assert {len(steps) for steps in ranks} == {9 // hvd.size()}
        batches = [tuple(step) for steps in ranks for step in steps]
        assert len(set(batches)) == len(batches) == 9 - 9 % hvd.size()
    assert data.dropped == 9 % hvd.size()


def check_validation_sees_everything_once() -> None:
    train = shard(numbered(LENGTH), BATCH, seed=SEED)
    test = shard(numbered(LENGTH), 8, shuffle=False, remainder="keep")
    seen = fitted(train, epochs=2, validation_data=test)
    assert_agreed(of_all(seen.epochs))
    for ranks in zip(*of_all(seen.tests), strict=True):
        assert sorted(flat([flat(steps) for steps in ranks])) == list(range(LENGTH))
    assert (test.dropped, test.padded) == (0, 0)


def check_padding_gives_some_twice() -> None:
    data = shard(numbered(LENGTH), BATCH, seed=SEED, remainder="pad")
    ranks = [flat(epochs[0]) for epochs in shared(data, epochs=1)]
    assert len({len(share) for share in ranks}) == 1
    assert set(flat(ranks)) == set(range(LENGTH))
    assert sum(map(len, ranks)) - LENGTH == data.padded == -LENGTH % hvd.size()


def check_rank_0_alone_says_what_was_dropped() -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        data = shard(numbered(LENGTH), BATCH)
        shard(numbered(LENGTH), BATCH, shuffle=False, remainder="keep")
    expected = f"farandole: shard: {data.remark}\n" if hvd.rank() == 0 else ""
    assert said.getvalue() == expected
    assert f"{LENGTH % hvd.size()} left out" in data.remark


def check_different_data_is_refused_on_all_ranks() -> None:
    refused(
        ("number of items is 40 on rank 0 and 41 on rank 1", "whole data"),
        numbered(40 + hvd.rank()),
    )
    refused(("seed is 0 on rank 0 and 1 on rank 1",), numbered(40), seed=hvd.rank())
    # And the library stays usable.
    shard(numbered(40))


def check_what_cannot_be_sharded() -> None:
    x, y = numbered(40)
    refused(("data[0] 40", "data[1] 39"), (x, y[:39]))
    refused(("1 samples", f"{hvd.size()} workers"), (x[:1], y[:1]))
    refused(("sharded before",), shard((x, y)))
    refused(("generator", "PyDataset", "steps_per_epoch"), (row for row in x))
    refused(("set", "tf.data.Dataset", "DataLoader"), {1, 2})
    refused(("batch_size=8", "its own batches"), Batches(8), 8)
    refused(("remainder='half'", "drop, pad, keep"), (x, y), remainder="half")
    refused(("shuffle=100", "tf.data.Dataset"), (x, y), shuffle=100)
    refused(("prepare=", "keras.utils.PyDataset"), Batches(8), prepare=lambda batch, *_: batch)


def check_a_wrapped_optimizer_makes_equal_steps() -> None:
    random = np.random.default_rng(5)
    x, y = random.normal(size=(LENGTH, 3)), random.normal(size=LENGTH)
    seed_weights(1)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse")
    model.build((None, 3))
    model.fit(shard((x, y), BATCH), epochs=2, verbose=0)
    weights = of_all([weight.tolist() for weight in model.get_weights()])
    assert all(theirs == weights[0] for theirs in weights)


def check_a_loader() -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    dataset = TensorDataset(*map(torch.from_numpy, numbered(LENGTH)))
    data = shard(DataLoader(dataset, batch_size=BATCH, shuffle=True), seed=SEED)
    assert_agreed(shared(data, epochs=3))
    assert_agreed(shared(data, epochs=5, initial_epoch=4), first=4)
    parallel = DataLoader(dataset, batch_size=BATCH, num_workers=1, persistent_workers=True)
    assert_agreed(shared(shard(parallel, seed=SEED), epochs=2))


def check_a_tf_dataset() -> None:
    # What TensorFlow's own backend does with it is checked in tf_dataset.
    import tensorflow as tf

    source = tf.data.Dataset.from_tensor_slices(numbered(LENGTH))
    whole = fitted(shard(source, BATCH, seed=SEED), epochs=3).epochs
    for ranks in zip(*of_all(whole), strict=True):
        numbers = flat([flat(steps) for steps in ranks])
        assert len({len(steps) for steps in ranks}) == 1, "unequal steps"
        assert len(numbers) == len(set(numbers)) == LENGTH - LENGTH % hvd.size()
    again = fitted(shard(source, BATCH, seed=SEED), epochs=3, initial_epoch=2).epochs
    assert again == whole[2:]

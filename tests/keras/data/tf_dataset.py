"""Checks of sharded tf.data.Datasets on real ranks; fit takes them on every backend."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

import farandole.keras as hvd
from farandole.keras.data import shard
from tests.keras.data.fitting import SEED, assert_agreed, flat, of_all, refused, shared
from tests.keras.data.recording import Batches, Steps, fitted, numbered

LENGTH, BATCH = 61, 4


def samples(length: int = LENGTH) -> Any:
    return tf.data.Dataset.from_tensor_slices(numbered(length))


def unknown(length: int = LENGTH) -> Any:
    """The same, of a number that only reading it tells."""
    return samples(length).filter(lambda x, y: True)


def looped(data: Any) -> Steps:
    return [x[:, 0].astype(int).tolist() for x, _ in data.as_numpy_iterator()]


def assert_dealt(ranks: list[Steps], count: int) -> None:
    """Equal steps of equal sizes, and so many samples in all, each once."""
    assert len({tuple(map(len, steps)) for steps in ranks}) == 1, ranks
    numbers = flat([flat(steps) for steps in ranks])
    assert len(numbers) == len(set(numbers)) == count, ranks


def check_samples_in_fit() -> None:
    data = shard(samples(), BATCH)
    whole = LENGTH - LENGTH % hvd.size()
    seen = fitted(data, epochs=3)
    epochs = list(zip(*of_all(seen.epochs), strict=True))
    for ranks in epochs:
        assert_dealt(list(ranks), whole)
    assert epochs[0] != epochs[1] != epochs[2]
    assert (data.dropped, data.steps) == (LENGTH % hvd.size(), len(epochs[0][0]))
    assert int(data.cardinality()) == data.steps


def check_a_resumed_fit_takes_the_same_order() -> None:
    whole = fitted(shard(samples(), BATCH), epochs=4).epochs
    again = fitted(shard(samples(), BATCH), epochs=4, initial_epoch=2).epochs
    assert again == whole[2:]
    data = shard(samples(), BATCH, initial_epoch=3)
    assert looped(data) == whole[3]


def check_fit_tells_its_epochs_to_data_with_steps_behind_shard() -> None:
    def data() -> Any:
        return shard(samples(), BATCH).map(lambda x, y: (x, 2.0 * y)).prefetch(2)

    whole = fitted(data(), epochs=4).epochs
    assert fitted(data(), epochs=4, initial_epoch=2).epochs == whole[2:]
    assert whole[0] != whole[1]


def check_seeds_give_other_orders() -> None:
    assert looped(shard(samples(), BATCH, seed=1)) != looped(shard(samples(), BATCH, seed=2))


def check_batches() -> None:
    data = shard(samples().batch(BATCH))
    # 16 batches, the last of one sample.
    seen = fitted(data, epochs=2)
    for ranks in zip(*of_all(seen.epochs), strict=True):
        assert {len(steps) for steps in ranks} == {16 // hvd.size()}
        batches = {tuple(step) for steps in ranks for step in steps}
        assert len(batches) == 16 - 16 % hvd.size()
        assert all(list(batch) == list(range(batch[0], batch[0] + len(batch))) for batch in batches)
    assert (data.unit, data.dropped) == ("batches", 16 % hvd.size())


def check_an_unknown_number_of_samples() -> None:
    data = shard(unknown(), BATCH)
    round_ = BATCH * hvd.size()
    for _ in range(2):
        assert_dealt(of_all(looped(data)), LENGTH - LENGTH % round_)
    assert data.dropped is None
    assert data.steps is None
    assert f"up to {round_ - 1} at the end" in data.remark


def check_an_unknown_number_of_batches() -> None:
    data = shard(unknown(63).batch(BATCH))
    ranks = of_all(looped(data))
    assert {len(steps) for steps in ranks} == {16 // hvd.size()}
    numbers = flat([flat(steps) for steps in ranks])
    assert len(set(numbers)) == len(numbers)


def check_an_unknown_number_of_single_tensors_and_of_dicts() -> None:
    plain = unknown().map(lambda x, y: x)
    named = unknown().map(lambda x, y: ({"a": x, "b": (y, x)}, y))
    for data in (plain, named):
        first = next(iter(shard(data, BATCH)))
        tf.nest.assert_same_structure(first, data.element_spec)
        assert len(tf.nest.flatten(first)[0]) == BATCH


def check_an_unknown_number_with_steps_that_are_known() -> None:
    data = shard(unknown(), BATCH, steps=3)
    assert_dealt(of_all(looped(data)), 3 * BATCH * hvd.size())
    assert int(data.cardinality()) == data.steps == 3
    short = shard(unknown(), BATCH, steps=100)
    with pytest.raises(tf.errors.FailedPreconditionError, match="100"):
        looped(short)


def check_a_limit_of_steps_sees_other_samples_each_epoch() -> None:
    data = shard(samples(), BATCH, steps=2)
    assert set(flat(looped(data))) != set(flat(looped(data)))
    assert data.dropped == LENGTH - 2 * BATCH * hvd.size()


def check_padding_gives_some_twice() -> None:
    data = shard(samples(), BATCH, remainder="pad")
    ranks = [flat(steps) for steps in of_all(looped(data))]
    assert len({len(share) for share in ranks}) == 1
    assert set(flat(ranks)) == set(range(LENGTH))
    assert sum(map(len, ranks)) - LENGTH == data.padded == -LENGTH % hvd.size()


def check_validation_sees_everything_once() -> None:
    for source in (samples(), unknown()):
        test = shard(source, 8, shuffle=False, remainder="keep")
        train = shard(samples(), BATCH)
        seen = fitted(train, epochs=1, validation_data=test)
        numbers = flat([flat(epoch) for tests in of_all(seen.tests) for epoch in tests])
        assert sorted(numbers) == list(range(LENGTH))
        assert (test.dropped, test.padded) == (0, 0)


def check_nothing_is_read_before_it_is_asked_for() -> None:
    read = []

    def note(x: Any, y: Any) -> Any:
        tf.py_function(lambda: read.append(1), [], [])
        return x, y

    data = shard(samples(1000).map(note), BATCH, shuffle=10)
    assert not read
    next(iter(data))
    assert 0 < len(read) < 500


def check_what_would_be_in_another_order_on_each_rank() -> None:
    options = tf.data.Options()
    options.deterministic = False
    loose = samples().map(lambda x, y: (x, y), num_parallel_calls=2, deterministic=False)
    refused(("without a seed", "Take .shuffle() out"), samples().shuffle(10), BATCH)
    refused(("without a seed",), samples().shuffle(10).map(lambda x, y: (x, y)), BATCH)
    refused(("deterministic=False",), samples().with_options(options), BATCH)
    refused(("deterministic=False",), loose, BATCH)
    assert_dealt(of_all(looped(shard(samples(24).shuffle(99, seed=5), BATCH))), 24)


def check_what_cannot_be_sharded() -> None:
    refused(("never ends", "Take .repeat() out"), samples().repeat(), BATCH)
    refused(("sharded already", ".shard()"), samples().shard(2, 0), BATCH)
    refused(("sharded before",), shard(samples(), BATCH))
    refused(("sharded before",), shard(samples(), BATCH).map(lambda x, y: (x, y)))
    refused(("single samples", "batch_size"), samples())
    refused(("batch_size=4", "comes in batches"), samples().batch(8), BATCH)
    refused(("batch_size=4", "comes in batches"), samples().batch(8, drop_remainder=True), BATCH)
    refused(("pad", "assert_cardinality"), unknown(), BATCH, remainder="pad")
    refused(("1 samples",), samples(1), BATCH)


def check_arrays_and_batches_in_fit() -> None:
    """They go into TensorFlow's fit in ways of their own."""
    data = shard(numbered(LENGTH), BATCH, seed=SEED)
    assert_agreed(shared(data, epochs=3))
    assert_agreed(shared(data, epochs=6, initial_epoch=4), first=4)
    test = shard(numbered(LENGTH), 8, shuffle=False, remainder="keep")
    seen = fitted(shard(Batches(9), seed=SEED), epochs=2, validation_data=test)
    for ranks in zip(*of_all(seen.epochs), strict=True):
        batches = {tuple(step) for steps in ranks for step in steps}
        assert len(batches) == 9 - 9 % hvd.size()
    for ranks in zip(*of_all(seen.tests), strict=True):
        assert sorted(flat([flat(steps) for steps in ranks])) == list(range(LENGTH))


def check_structures_of_arrays_in_fit() -> None:
    x, y = numbered(24)
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(keras.layers.Add()([a, b])))
    model.compile(optimizer="sgd", loss="mse")
    for weights in ((), (y,)):
        data = shard(({"b": x, "a": x.astype("float64")}, y, *weights), BATCH)
        assert len(model.fit(data, epochs=2, verbose=0).history["loss"]) == 2
    # Class weights are Keras's own way.
    model.fit(shard(({"b": x, "a": x}, (y > 9).astype("int64")), BATCH), class_weight={0: 1, 1: 2})
    alone = shard(x, BATCH, shuffle=False, remainder="keep")
    outputs = keras.Sequential([keras.layers.Identity()]).predict(alone, verbose=0)
    assert outputs[:, 0].tolist() == list(range(hvd.rank(), 24, hvd.size()))

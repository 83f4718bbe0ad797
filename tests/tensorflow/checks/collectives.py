"""Values, gradients, shapes and errors of collective operations, eagerly and in tf.function."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import MismatchError, UsageError
from tests.tensorflow.checks.both import both, everyone, raises, same


def values(rank: int, dtype: str = "float32") -> Any:
    return (np.arange(6).reshape(2, 3) % 3 + rank + 1).astype(tf.as_dtype(dtype).as_numpy_dtype)


def check_allreduce_combines() -> None:
    combine = {
        hvd.Average: lambda all_: np.mean(all_, 0),
        hvd.Sum: lambda all_: np.sum(all_, 0),
        hvd.Min: lambda all_: np.min(all_, 0),
        hvd.Max: lambda all_: np.max(all_, 0),
        hvd.Product: lambda all_: np.prod(all_, 0),
    }
    mine = tf.constant(values(hvd.rank()))
    for op, expected in combine.items():
        for found in both(lambda x, op=op: hvd.allreduce(x, op=op), mine):
            same(found, expected(everyone(values)))
    for found in both(hvd.allreduce, mine):
        same(found, np.mean(everyone(values), 0))


def check_allreduce_takes_types() -> None:
    for dtype in ("float16", "bfloat16", "float64", "int32", "int64", "uint8"):
        mine = tf.constant(values(hvd.rank(), dtype))
        for found in both(lambda x: hvd.allreduce(x, op=hvd.Sum), mine):
            assert found.dtype == mine.dtype
            same(tf.cast(found, tf.float64), np.sum(everyone(values), 0))


def check_allreduce_takes_variables_and_numbers() -> None:
    import keras

    mean = np.mean(everyone(values), 0)
    variable = tf.Variable(values(hvd.rank()))
    of_keras = keras.Variable(values(hvd.rank()))
    for found in both(lambda: hvd.allreduce(variable)) + both(lambda: hvd.allreduce(of_keras)):
        same(found, mean)
    same(hvd.allreduce(float(hvd.rank())), np.mean(everyone(float), dtype=np.float32))
    same(hvd.allreduce(values(hvd.rank())), mean)


def check_allreduce_scales() -> None:
    for found in both(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
        tf.constant(values(hvd.rank())),
    ):
        same(found, 1.5 * np.sum(everyone(values), 0))


def check_average_is_another_word_for_op() -> None:
    mine = tf.constant(values(hvd.rank()))
    same(hvd.allreduce(mine, average=False), np.sum(everyone(values), 0))
    same(hvd.allreduce(mine, True), np.mean(everyone(values), 0))
    with raises(ValueError, "not both"):
        hvd.allreduce(mine, average=True, op=hvd.Sum)


def gradient_of(work: Any, mine: Any, weights: Any) -> Any:
    """Return the gradient of sum(work(mine) * weights)."""

    def run(x: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(work(x) * w)
        return tape.gradient(loss, x)

    return both(run, tf.constant(mine), tf.constant(weights))


def check_gradients_of_allreduce() -> None:
    mine, weights = values(hvd.rank()), values(hvd.rank() + 5)
    upstream = everyone(lambda rank: values(rank + 5))
    for op, expected in ((hvd.Average, np.mean(upstream, 0)), (hvd.Sum, np.sum(upstream, 0))):
        for name in (None, f"graded.{op}"):
            for found in gradient_of(
                lambda x, op=op, name=name: hvd.allreduce(x, op=op, name=name), mine, weights
            ):
                same(found, expected)
    for found in gradient_of(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0),
        mine,
        weights,
    ):
        same(found, 6 * np.sum(upstream, 0))
    with raises(UsageError, "max has no gradient"), tf.GradientTape() as tape:
        x = tf.constant(mine)
        tape.watch(x)
        tape.gradient(hvd.allreduce(x, op=hvd.Max), x)


def check_the_gradient_of_a_gradient() -> None:
    """The sum of squares of averages, differentiated twice, is a constant."""
    x = tf.constant(float(hvd.rank() + 1))

    def work(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = hvd.allreduce(x, op=hvd.Sum) ** 2
            first = inner.gradient(y, x)
        return first, outer.gradient(first, x)

    total = sum(range(1, hvd.size() + 1))
    for first, second in both(work, x):
        same(first, np.float32(2 * total * hvd.size()))
        same(second, np.float32(2 * hvd.size() * hvd.size()))


def check_a_gradient_that_is_slices() -> None:
    def work(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.gather(hvd.allreduce(x, op=hvd.Sum), [1]))
        return tape.gradient(loss, x)

    for found in both(work, tf.ones([3])):
        same(found, np.array([0, hvd.size(), 0], np.float32))


def check_grouped_allreduce() -> None:
    def work(*tensors: Any) -> Any:
        return hvd.grouped_allreduce(tensors, op=hvd.Sum)

    def mine(rank: int) -> list[Any]:
        return [
            values(rank),
            np.float32(rank),
            np.arange(3) + rank,
            np.ones((0, 2), np.float32),
            values(rank, "bfloat16"),
        ]

    for found in both(work, *map(tf.constant, mine(hvd.rank()))):
        for index, result in enumerate(found):
            given = mine(hvd.rank())[index]
            assert result.dtype == tf.as_dtype(given.dtype)
            expected = np.sum(everyone(lambda r, i=index: mine(r)[i].astype(np.float64)), 0)
            same(tf.cast(result, tf.float64), expected)
    assert hvd.grouped_allreduce([]) == []
    (named,) = hvd.grouped_allreduce([tf.constant(values(hvd.rank()))], name="one")
    same(named, np.mean(everyone(values), 0))


def check_adasum() -> None:
    """What points in one direction is averaged, what is at right angles added."""
    own = np.eye(hvd.size(), dtype=np.float32)[hvd.rank()] * (hvd.rank() + 1)
    together = np.arange(1, hvd.size() + 1, dtype=np.float32)
    for found in both(lambda x: hvd.allreduce(x, op=hvd.Adasum), tf.constant(own)):
        same(found, together)
    # In a group each tensor has a direction of its own.
    for found in both(
        lambda x, y: hvd.grouped_allreduce([x, y], op=hvd.Adasum),
        tf.constant(own),
        tf.ones([3, 2], tf.bfloat16),
    ):
        same(found[0], together)
        assert found[1].dtype == tf.bfloat16
        same(tf.cast(found[1], tf.float64), np.ones((3, 2)))
    for work, words in (
        (lambda: hvd.allreduce(tf.constant([1]), op=hvd.Adasum), "not int32"),
        (lambda: hvd.reducescatter(tf.ones(2), op=hvd.Adasum), "cannot combine by Adasum"),
        (lambda: hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Adasum), "in buckets"),
    ):
        with raises(UsageError, words):
            work()
    with raises(UsageError, "adasum has no gradient"), tf.GradientTape() as tape:
        x = tf.constant(own)
        tape.watch(x)
        tape.gradient(hvd.allreduce(x, op=hvd.Adasum), x)


def check_a_large_group() -> None:
    tensors = [tf.fill([index % 5 + 1], float(hvd.rank() + index)) for index in range(40)]
    offset = np.mean(range(hvd.size()))
    for found in both(lambda *tensors: hvd.grouped_allreduce(tensors), *tensors):
        for index, result in enumerate(found):
            same(result, np.full(index % 5 + 1, offset + index, np.float32))


def check_gradients_of_a_group() -> None:
    def work(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            a, b = hvd.grouped_allreduce([x, y])
            loss = tf.reduce_sum(a) * float(hvd.rank()) + 2.0 * tf.reduce_sum(b)
        return tape.gradient(loss, [x, y])

    for one, other in both(work, tf.ones(2), tf.ones([2, 2])):
        same(one, np.full(2, np.mean(range(hvd.size())), np.float32))
        same(other, np.full((2, 2), 2.0, np.float32))


def check_allgather() -> None:
    def mine(rank: int) -> Any:
        return np.full((rank + 1, 2), rank, np.float32)

    expected = np.concatenate(everyone(mine))
    for found in both(hvd.allgather, tf.constant(mine(hvd.rank()))):
        same(found, expected)
    for found in both(
        lambda x, y: hvd.grouped_allgather([x, y], name="both"),
        tf.constant(mine(hvd.rank())),
        tf.constant([hvd.rank()], tf.int64),
    ):
        same(found[0], expected)
        assert found[1].numpy().tolist() == list(range(hvd.size()))
    assert hvd.grouped_allgather([]) == []


def check_gradients_of_allgather() -> None:
    """Averages of the gradients, of which each rank gets its rows."""
    sizes = [rank + 1 for rank in range(hvd.size())]
    weights = np.arange(sum(sizes), dtype=np.float32)
    start = sum(sizes[: hvd.rank()])
    expected = (weights * np.mean(range(1, hvd.size() + 1)))[start:][: sizes[hvd.rank()]]
    for found in gradient_of(
        hvd.allgather, np.ones(sizes[hvd.rank()], np.float32), weights * (hvd.rank() + 1)
    ):
        same(found, expected)


def check_broadcast() -> None:
    root = hvd.size() - 1
    for found in both(lambda x: hvd.broadcast(x, root), tf.constant(values(hvd.rank()))):
        same(found, values(root))
    for found in both(lambda x: hvd.broadcast(x, root), tf.constant(hvd.rank() == root)):
        assert bool(found)
    with raises(UsageError, "not a rank"):
        hvd.broadcast(tf.ones(1), hvd.size())


def check_gradients_of_broadcast() -> None:
    average = np.mean(everyone(lambda rank: values(rank + 5)), 0)
    expected = average if hvd.rank() == 1 else np.zeros_like(average)
    for found in gradient_of(
        lambda x: hvd.broadcast(x, 1), values(hvd.rank()), values(hvd.rank() + 5)
    ):
        same(found, expected)


def sent(rank: int, splits: list[int]) -> Any:
    return np.arange(sum(splits), dtype=np.float32) + 100 * rank


def check_alltoall() -> None:
    def splits(rank: int) -> list[int]:
        return [(rank + to) % 3 for to in range(hvd.size())]

    me = hvd.rank()
    parts, counts = [], []
    for rank in range(hvd.size()):
        start = sum(splits(rank)[:me])
        parts.append(sent(rank, splits(rank))[start:][: splits(rank)[me]])
        counts.append(splits(rank)[me])
    mine = tf.constant(sent(me, splits(me)))
    for rows, received in both(hvd.alltoall, mine, tf.constant(splits(me), tf.int32)):
        same(rows, np.concatenate(parts))
        assert received.numpy().tolist() == counts
    rows, _ = hvd.alltoall(mine, splits(me))
    same(rows, np.concatenate(parts))
    for rows in both(hvd.alltoall, tf.fill([hvd.size(), 2], float(me))):
        same(rows, np.repeat(np.arange(hvd.size(), dtype=np.float32), 2).reshape(-1, 2))
    with raises(UsageError, "int32"):
        hvd.alltoall(mine, np.array(splits(me), np.int64))


def check_gradients_of_alltoall() -> None:
    """The gradient of a row comes back from the rank that it went to; else it is zero."""
    splits = [to + 1 for to in range(hvd.size())]

    def work(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows, _ = hvd.alltoall(x, splits)
            loss = tf.reduce_sum(rows) * float(hvd.rank() + 1)
        return tape.gradient(loss, x)

    expected = np.repeat(np.arange(hvd.size()) + 1.0, splits)[:, None] * np.ones(2)
    for nobodys in (0, 1):
        whole = np.concatenate([expected, np.zeros((nobodys, 2))])
        for found in both(work, tf.ones(whole.shape)):
            same(found, whole)


def check_reducescatter() -> None:
    rows = 2 * hvd.size() + 1

    def mine(rank: int) -> Any:
        return np.arange(rows * 2, dtype=np.float32).reshape(rows, 2) * (rank + 1)

    first = 2 * hvd.rank() + min(hvd.rank(), 1)
    last = first + 2 + (hvd.rank() < 1)
    for op, expected in (
        (hvd.Average, np.mean(everyone(mine), 0)),
        (hvd.Sum, np.sum(everyone(mine), 0)),
    ):
        for found in both(
            lambda x, op=op: hvd.reducescatter(x, op=op), tf.constant(mine(hvd.rank()))
        ):
            same(found, expected[first:last])
    for found in both(
        lambda x: hvd.grouped_reducescatter([x, 2 * x], op=hvd.Sum), tf.constant(mine(hvd.rank()))
    ):
        same(found[1], 2 * np.sum(everyone(mine), 0)[first:last])
    assert hvd.grouped_reducescatter([]) == []


def check_gradients_of_reducescatter() -> None:
    """All ranks' gradients one behind the other, times their number for Sum: Horovod's."""
    for op, factor in ((hvd.Average, 1.0), (hvd.Sum, float(hvd.size()))):
        for found in gradient_of(
            lambda x, op=op: hvd.reducescatter(x, op=op),
            np.ones(2 * hvd.size(), np.float32),
            np.float32(hvd.rank() + 1),
        ):
            same(found, factor * np.repeat(np.arange(hvd.size()) + 1.0, 2))


def check_names() -> None:
    """A name goes before the order of calls, and may be used again."""
    for turn in range(2):
        for name in ("a", "b"):
            mine = float(hvd.rank() + turn)
            total = hvd.size() * turn + sum(range(hvd.size()))
            same(hvd.allreduce(tf.constant(mine), op=hvd.Sum, name=name), np.float32(total))
    with raises(MismatchError, ": allreduce of float32[1]", "rank 1: allreduce of int32[1]"):
        hvd.allreduce(tf.ones(1, tf.int32 if hvd.rank() == 1 else tf.float32), name="a")


def check_a_name_that_is_not_there() -> None:
    with raises(AttributeError, "farandole.tensorflow has no nothing: it has Compression"):
        _ = hvd.nothing


def check_compression() -> None:
    mine = tf.constant(values(hvd.rank()) / 3)
    expected = np.mean(everyone(lambda rank: values(rank) / 3), 0)
    for compression, rtol in ((hvd.Compression.fp16, 1e-3), (hvd.Compression.bf16, 1e-2)):
        for found in both(lambda x, c=compression: hvd.allreduce(x, compression=c), mine):
            assert found.dtype == tf.float32
            same(found, expected, rtol)
            assert not np.array_equal(found, expected), "it was not compressed"
    counts = hvd.allreduce(tf.constant(hvd.rank()), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert counts.dtype == tf.int32
    with raises(UsageError, "no compression"):
        hvd.allreduce(mine, compression="fp16")


def check_a_compression_of_ones_own() -> None:
    class Halves:
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor / 2, 2.0

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor * ctx

    mine = tf.constant(values(hvd.rank()))
    for found in both(lambda x: hvd.allreduce(x, compression=Halves), mine):
        same(found, np.mean(everyone(values), 0))


def check_slices() -> None:
    def slices(rank: int) -> Any:
        rows = rank + 1
        return np.full((rows, 2), rank + 1.0, np.float32), np.arange(rows, dtype=np.int64)

    dense = np.zeros((2, hvd.size() + 1, 2), np.float32)
    for rank in range(hvd.size()):
        rows, places = slices(rank)
        dense[:, places] += rows
    dense[0] /= hvd.size()

    def work(rows: Any, places: Any) -> Any:
        given = tf.IndexedSlices(rows, places, tf.constant([hvd.size() + 1, 2], tf.int64))
        combined = [hvd.allreduce(given), hvd.allreduce(given, op=hvd.Sum, name="slices")]
        assert all(isinstance(each, tf.IndexedSlices) for each in combined)
        return [tf.convert_to_tensor(each) for each in combined]

    for found in both(work, *map(tf.constant, slices(hvd.rank()))):
        same(tf.stack(found), dense)


def check_averages_of_integers_are_no_integers() -> None:
    kinds = {tf.int8: tf.float32, tf.int16: tf.float32, tf.int32: tf.float64, tf.int64: tf.float64}
    for dtype, expected in kinds.items():

        def work(values: Any) -> Any:
            given = tf.IndexedSlices(values, tf.constant([0]), tf.constant([1]))
            average = hvd.allreduce(given)
            (grouped,) = hvd.grouped_allreduce([given])
            total = hvd.allreduce(given, op=hvd.Sum)
            return average.values, grouped.values, total.values

        for average, grouped, total in both(work, tf.constant([3], dtype)):
            assert (average.dtype, grouped.dtype, total.dtype) == (expected, expected, dtype)
            same(average, np.full(hvd.size(), 3 / hvd.size()))
            same(grouped, np.full(hvd.size(), 3 / hvd.size()))
            same(total, np.full(hvd.size(), 3))


def check_what_slices_cannot_do() -> None:
    given = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([1, 2]))
    ops = [{"op": op} for op in (hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)]
    for wrong in [*ops, {"prescale_factor": 2.0}, {"postscale_factor": 2.0}]:

        def alone(wrong: Any = wrong) -> Any:
            return hvd.allreduce(given, **wrong).values

        def grouped(wrong: Any = wrong) -> Any:
            return hvd.grouped_allreduce([tf.ones(2), given], **wrong)[1].values

        for work in (alone, grouped):
            for call in (work, tf.function(work)):
                # As Horovod's; UsageError is what Farandole raises everywhere else.
                with raises(NotImplementedError, "summed or averaged", "sparse_as_dense"):
                    call()
    with raises(UsageError, "summed or averaged"):
        hvd.allreduce(given, op=hvd.Max)
    bools = tf.IndexedSlices(tf.constant([True]), tf.constant([0]), tf.constant([1]))
    with raises(UsageError, "bool"):
        hvd.allreduce(bools)


def check_a_group_with_slices() -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([hvd.rank()]), tf.constant([3, 2]))
    dense, combined = hvd.grouped_allreduce([tf.ones(2), slices], op=hvd.Sum)
    same(dense, np.full(2, hvd.size(), np.float32))
    expected = np.repeat([1.0] * hvd.size() + [0.0] * (3 - hvd.size()), 2).reshape(3, 2)
    same(tf.convert_to_tensor(combined), expected)

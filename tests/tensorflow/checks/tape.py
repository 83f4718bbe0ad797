"""DistributedGradientTape: the right gradients, and training that equals one worker's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import alike, both, everyone, raises, same

BATCH, STEPS = 4, 20


def model_of(seed: int) -> Any:
    """Return a small model, the same for all who give the same seed."""
    layer = keras.layers.Dense
    init = keras.initializers.GlorotUniform
    return keras.Sequential(
        [
            keras.Input([5]),
            layer(8, "tanh", kernel_initializer=init(seed)),
            layer(1, kernel_initializer=init(seed + 1)),
        ]
    )


def batch(step: int, rank: int) -> tuple[Any, Any]:
    generator = np.random.default_rng([step, rank])
    x = generator.normal(size=(BATCH, 5)).astype(np.float32)
    return x, x.sum(1, keepdims=True) ** 2


def train(
    model: Any, optimizer: Any, data: Callable[[int], Any], *, wrap: Any, traced: bool
) -> Any:
    """Train for some steps by hand; return all weights as one vector."""

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = wrap(tape).gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    optimizer.build(model.trainable_variables)
    run = tf.function(step) if traced else step
    for number in range(STEPS):
        run(*map(tf.constant, data(number)))
    return np.concatenate([np.ravel(each) for each in model.get_weights()])


def whole(step: int) -> tuple[Any, Any]:
    batches = [batch(step, rank) for rank in range(hvd.size())]
    return tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))  # type: ignore[return-value]


def check_training_equals_one_worker_with_the_whole_batch() -> None:
    for make in (lambda: keras.optimizers.SGD(0.02, 0.9), lambda: keras.optimizers.Adam(0.01)):
        expected = train(model_of(1), make(), whole, wrap=lambda tape: tape, traced=True)
        for traced in (False, True):
            found = train(
                model_of(1),
                make(),
                lambda step: batch(step, hvd.rank()),
                wrap=hvd.DistributedGradientTape,
                traced=traced,
            )
            alike(found)
            assert np.linalg.norm(found - expected) < 1e-6 * np.linalg.norm(expected)


def slope(rank: int) -> float:
    return rank + 1.0


def gradients(
    sources: Any, target: Callable[[Any], Any] | None = None, **options: Any
) -> list[Any]:
    """Return gradients of the sum of all sources times a slope of this rank's."""

    def work() -> Any:
        with tf.GradientTape() as tape:
            if target is None:
                total = tf.add_n([tf.reduce_sum(each) for each in tf.nest.flatten(sources)])
                loss = slope(hvd.rank()) * total
            else:
                loss = target(sources)
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, sources)

    return both(work)


def mean() -> float:
    return float(np.mean(everyone(slope)))


def check_structures_are_kept() -> None:
    sources = {"a": tf.Variable([1.0, 2.0]), "b": [tf.Variable(3.0), tf.Variable([[4.0]])]}
    for found in gradients(sources):
        same(found["a"], np.full(2, mean(), np.float32))
        same(found["b"][0], np.float32(mean()))
        assert found["b"][1].shape == [1, 1]
    for found in gradients(sources["a"]):
        same(found, np.full(2, mean(), np.float32))


def check_how_they_are_combined() -> None:
    one = tf.Variable([1.0])
    slopes = everyone(slope)
    for options, expected in (
        ({"op": hvd.Sum}, sum(slopes)),
        ({"op": hvd.Max}, max(slopes)),
        ({"gradient_predivide_factor": 2.0}, mean()),
        ({"compression": hvd.Compression.fp16}, mean()),
        ({"compression": hvd.Compression.bf16}, mean()),
        ({"num_groups": 2, "device_dense": "/cpu:0"}, mean()),
    ):
        for found in gradients([one], **options):
            assert found[0].dtype == tf.float32
            same(found[0], [expected], 1e-3)
    with raises(UsageError, "op=hvd.Average only"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)


def check_half_precision_on_the_way() -> None:
    """A third is not a number of half precision."""
    third = lambda sources: tf.reduce_sum(sources[0]) / 3  # noqa: E731
    for found in gradients([tf.Variable([1.0])], third, compression=hvd.Compression.fp16):
        same(found[0], [np.float16(1 / 3)])


def check_a_compression_of_ones_own() -> None:
    class Doubles:
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tf.cast(tensor, tf.float64), tensor.dtype

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            assert tensor.dtype == tf.float64
            return tf.cast(tensor, ctx)

    for found in gradients([tf.Variable([1.0])], compression=Doubles):
        assert found[0].dtype == tf.float32
        same(found[0], [mean()])


def check_rows_that_were_looked_up() -> None:
    table = tf.Variable(tf.ones([4, 2]))

    def target(sources: Any) -> Any:
        rows = [hvd.rank(), 3, 3][: hvd.rank() + 2]
        return slope(hvd.rank()) * tf.reduce_sum(tf.nn.embedding_lookup(sources[0], rows))

    expected = np.zeros((4, 2), np.float32)
    for rank in range(hvd.size()):
        for row in [rank, 3, 3][: rank + 2]:
            expected[row] += slope(rank) / hvd.size()
    for found in gradients([table], target):
        assert isinstance(found[0], tf.IndexedSlices)
        same(tf.convert_to_tensor(found[0]), expected)
    for found in gradients([table], target, sparse_as_dense=True):
        assert isinstance(found[0], tf.Tensor)
        same(found[0], expected)
    both_kinds = lambda s: target(s) + slope(hvd.rank()) * tf.reduce_sum(s[1])  # noqa: E731
    for found in gradients([table, tf.Variable([1.0])], both_kinds):
        same(tf.convert_to_tensor(found[0]), expected)
        same(found[1], [mean()])


def check_rows_on_some_ranks_only() -> None:
    """Others have no gradient, or a dense one: nobody waits for what never comes."""
    table, other = tf.Variable(tf.ones([3, 2])), tf.Variable([1.0])

    def looked_up(sources: Any) -> Any:
        return tf.reduce_sum(tf.gather(sources[0], [0, 0])) + tf.reduce_sum(sources[1])

    def summed(sources: Any) -> Any:
        return tf.reduce_sum(sources[0]) + tf.reduce_sum(sources[1])

    first, size = hvd.rank() == 0, hvd.size()
    mixed = np.full((3, 2), (size - 1) / size, np.float32)
    mixed[0] += 2 / size
    # Those without rows come with a dense gradient in the first step, and the other way round.
    for target in (looked_up if first else summed, summed if first else looked_up):
        for found in gradients([table, other], target):
            expected = mixed if target is (looked_up if first else summed) else None
            if expected is None:
                expected = np.full((3, 2), 1 / size, np.float32)
                expected[0] += 2 * (size - 1) / size
            same(tf.convert_to_tensor(found[0]), expected)
            same(found[1], [1.0])
    for sources in ([table, other, tf.Variable(2.0)], [table]):

        def work(sources: Any = sources) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [1])) if first else tf.zeros([])
            return hvd.DistributedGradientTape(tape).gradient(loss, sources)

        if first:
            expected = np.array([[0, 0], [1 / size] * 2, [0, 0]], np.float32)
            same(tf.convert_to_tensor(work()[0]), expected)
        else:
            with raises(UsageError, f"Rank {hvd.rank()} has no gradient of variable 0"):
                work()


def check_rows_take_no_place_in_buckets() -> None:
    from farandole.tensorflow import gradients as module

    table = tf.Variable(tf.ones([7, 11]))
    gradients([table, tf.Variable(tf.ones([13]))], lambda s: tf.gather(s[0], 1) * s[1][0])
    (found,) = module._movers._found.values()
    *_, last = found.values()
    assert last.gathered.keys() == {0}
    assert last.gradients._nbytes == 13 * 4


def check_local_sources() -> None:
    shared, own = tf.Variable([1.0]), keras.Variable([1.0])
    for scale in (True, False):

        def work(scale: bool = scale) -> Any:
            with tf.GradientTape() as tape:
                loss = slope(hvd.rank()) * (tf.reduce_sum(shared) + tf.reduce_sum(own))
            tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
            tape.register_local_source(own)
            return tape.gradient(loss, [own, shared])

        for found in both(work):
            same(found[0], [slope(hvd.rank()) / (hvd.size() if scale else 1)])
            same(found[1], [mean()])


def check_local_layers() -> None:
    model = model_of(3)
    x, y = map(tf.constant, batch(0, hvd.rank()))

    def work(wrap: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        return wrap(tape).gradient(loss, model.trainable_variables)

    own = work(lambda tape: tape)
    partial = lambda tape: hvd.PartialDistributedGradientTape(  # noqa: E731
        tape, local_layers=model.layers[0], scale_local_gradients=False
    )
    found = work(partial)
    for index in (0, 1):
        same(found[index], own[index])
    for index in (2, 3):
        same(found[index], hvd.allreduce(own[index]))
    with raises(UsageError, "str where a Keras layer"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=["dense"])


def check_it_is_a_tape() -> None:
    x = tf.constant(3.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        tape.watch(x)
        y = slope(hvd.rank()) * x * x
        with tape.stop_recording():
            unseen = x * 100.0
        y += unseen
    assert isinstance(tape, tf.GradientTape)
    for _ in range(2):
        same(tape.gradient(y, x), np.float32(6 * mean()))
    variable = tf.Variable([1.0, 2.0])
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        z = slope(hvd.rank()) * variable
    assert [each is variable for each in tape.watched_variables()] == [True]
    # Each rank's own: Jacobians are not combined.
    same(tape.jacobian(z, variable), slope(hvd.rank()) * np.eye(2))
    with raises(UsageError, "wrap it only once"):
        hvd.DistributedGradientTape(tape)
    with raises(UsageError, "takes a tf.GradientTape, not a int"):
        hvd.DistributedGradientTape(1)


def check_a_wrapped_optimizer_does_the_same() -> None:
    mine = lambda step: batch(step, hvd.rank())  # noqa: E731
    plain: Any = {"wrap": lambda tape: tape, "traced": True}
    expected = train(model_of(2), keras.optimizers.SGD(0.02), whole, **plain)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.02))
    found = train(model_of(2), optimizer, mine, **plain)
    alike(found)
    assert np.linalg.norm(found - expected) < 1e-6 * np.linalg.norm(expected)
    with raises(UsageError, "optimizer of TensorFlow 1", "DistributedGradientTape"):
        hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))


def check_variables_of_tensorflow() -> None:
    """Programs without a Keras model: Keras's optimizers take tf.Variable, too."""
    for passes in (1, 2):
        shared, own = tf.Variable([1.0, 2.0], name="shared"), tf.Variable(3.0)
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), backward_passes_per_step=passes, scale_local_gradients=False
        )
        optimizer.register_local_var(own)
        optimizer.build([shared, own])

        @tf.function
        def step(slope: Any, optimizer: Any = optimizer, both: Any = (shared, own)) -> None:
            optimizer.apply_gradients([(slope * tf.ones_like(each), each) for each in both])

        for number in range(passes):
            step(tf.constant(hvd.rank() + number + 1.0))
        total = sum((hvd.size() + 1) / 2 + number for number in range(passes))
        same(shared, np.array([1.0, 2.0]) - total)
        same(own, 3.0 - sum(hvd.rank() + number + 1.0 for number in range(passes)))

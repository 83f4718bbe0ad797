"""SyncBatchNormalization against one worker's BatchNormalization over the batches of all."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import raises, same

CHANNELS = 3


def data(rank: int, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """Return a batch of this rank's, of its own size, and weights for a loss of it."""
    generator = np.random.default_rng([rank, len(shape)])
    whole = (rank + 2, *shape)
    x = generator.normal(loc=5 + rank, scale=1 + rank, size=whole)
    return x.astype(dtype), generator.normal(size=whole).astype(dtype)


def mask_of(rank: int, shape: tuple[int, ...]) -> Any:
    """Return a mask with nothing in it on the last rank."""
    generator = np.random.default_rng(rank)
    found = generator.random(size=(rank + 2, *shape)[:-1]) < 0.6
    return found & (rank < hvd.size() - 1)


def run(layer: Any, x: Any, w: Any, mask: Any, traced: bool) -> list[Any]:
    """Return output, the gradient of the input and of the weights, after two steps."""
    layer.build(x.shape)

    def step(x: Any, w: Any, mask: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, mask=mask)
            loss = tf.reduce_sum(y * tf.cast(w, y.dtype))
        return y, tape.gradient(loss, [x, *layer.trainable_variables])

    call = tf.function(step) if traced else step
    given = (tf.constant(x), tf.constant(w), None if mask is None else tf.constant(mask))
    call(*given)
    y, gradients = call(*given)
    return [y, *gradients]


def compare(
    shape: tuple[int, ...],
    *,
    masked: bool = False,
    precision: str = "float32",
    rtol: float = 1e-4,
    **options: Any,
) -> None:
    ranks = range(hvd.size())
    xs, ws = zip(*(data(rank, shape, precision) for rank in ranks), strict=True)
    masks = [mask_of(rank, shape) for rank in ranks]
    one = keras.layers.BatchNormalization(**options)
    expected = run(
        one,
        np.concatenate(xs),
        np.concatenate(ws),
        np.concatenate(masks) if masked else None,
        traced=True,
    )
    start = sum(len(x) for x in xs[: hvd.rank()])
    mine = slice(start, start + len(xs[hvd.rank()]))
    for traced in (False, True):
        layer = hvd.SyncBatchNormalization(**options)
        found = run(
            layer, xs[hvd.rank()], ws[hvd.rank()], masks[hvd.rank()] if masked else None, traced
        )
        assert found[0].dtype == expected[0].dtype
        for part in (0, 1):
            near(found[part], expected[part][mine], rtol)
        # Each worker's own part of the sums that one worker has.
        for part in range(2, len(expected)):
            near(hvd.allreduce(found[part], op=hvd.Sum), expected[part], rtol)
        for own, other in zip(
            layer.non_trainable_variables, one.non_trainable_variables, strict=True
        ):
            near(own, other, rtol)


def near(found: Any, expected: Any, rtol: float) -> None:
    """Compare by the norm: single gradients cancel to next to nothing."""
    found, expected = (
        np.asarray(tf.cast(tf.convert_to_tensor(each), tf.float64)) for each in (found, expected)
    )
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) <= rtol * max(np.linalg.norm(expected), 1e-3), (
        found,
        expected,
    )


def check_shapes() -> None:
    compare((CHANNELS,))
    compare((4, 5, CHANNELS), momentum=0.7, epsilon=1e-2)
    compare((CHANNELS, 4, 5), axis=1)


def check_precisions() -> None:
    compare((4, CHANNELS), precision="float64", rtol=1e-10, dtype="float64")
    compare((4, CHANNELS), precision="float16", rtol=5e-3, dtype="mixed_float16")


def check_options() -> None:
    compare((4, CHANNELS), center=False, scale=False)
    compare((6, CHANNELS), masked=True)
    if "renorm" in keras.layers.BatchNormalization().get_config():
        compare((4, CHANNELS), renorm=True, renorm_clipping={"rmax": 3.0, "rmin": 0.3, "dmax": 5.0})


def check_large_means() -> None:
    """Variances survive a mean that is thousands of times larger."""
    x = (np.random.default_rng(hvd.rank()).normal(size=(64, 2)) + 10_000).astype(np.float32)
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    layer.build(x.shape)
    layer(tf.constant(x), training=True)
    everything = hvd.allgather(tf.constant(x)).numpy().astype(np.float64)
    near(layer.moving_variance, everything.var(0), 1e-3)


def check_inference_needs_nobody() -> None:
    layer = hvd.SyncBatchNormalization()
    layer.build((None, 2))
    if hvd.rank() == 0:
        same(layer(tf.ones([1, 2])), tf.ones([1, 2]) / np.sqrt(1.001))
        layer.trainable = False
        same(layer(tf.ones([1, 2]), training=True), tf.ones([1, 2]) / np.sqrt(1.001))


def check_in_a_model() -> None:
    model = keras.Sequential(
        [keras.Input([4]), hvd.SyncBatchNormalization(name="sync"), keras.layers.Dense(1)]
    )
    x, y = np.random.default_rng(hvd.rank()).normal(size=(8, 4)), np.ones((8, 1))
    hvd.broadcast_variables(model.variables, 0)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    for variable in model.variables:
        mine = variable.numpy().tobytes()
        assert hvd.allgather_object(mine) == [mine] * hvd.size(), variable.path
    config = model.get_layer("sync").get_config()
    again = hvd.SyncBatchNormalization.from_config(config)
    assert again.get_config() == config
    copy = keras.models.clone_model(model)
    assert isinstance(copy.get_layer("sync"), hvd.SyncBatchNormalization)


def check_it_is_never_fused() -> None:
    hvd.SyncBatchNormalization(fused=False)
    with raises(UsageError, "cannot be fused"):
        hvd.SyncBatchNormalization(fused=True)

"""Broadcasting variables and objects, numbers as tensors, names of farandole.keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import farandole.keras
import farandole.tensorflow as hvd
import farandole.tensorflow.keras
import farandole.tensorflow.keras.callbacks
from farandole.errors import UsageError
from tests.tensorflow.checks.both import alike, raises, same


def variables() -> list[Any]:
    return [
        tf.Variable(tf.fill([2, 3], float(hvd.rank()))),
        tf.Variable([hvd.rank(), 5], dtype=tf.int64, trainable=False),
        tf.Variable(hvd.rank() == 1),
        tf.Variable([hvd.rank() + 2**31], dtype=tf.uint32),
        tf.Variable(tf.cast([hvd.rank()], tf.bfloat16)),
        keras.Variable(np.full(4, hvd.rank() + 0.5, np.float32)),
    ]


def check_broadcast_variables() -> None:
    expected = [np.full((2, 3), 1.0), [1, 5], True, [1 + 2**31], [1.0], np.full(4, 1.5)]
    for how in (hvd.broadcast_variables, hvd.broadcast_):
        for traced in (False, True):
            found = variables()
            _run(lambda how=how, found=found: lambda: how(found, 1), traced)
            for variable, value in zip(found, expected, strict=True):
                same(tf.cast(tf.convert_to_tensor(variable), tf.float64), value)
    hvd.broadcast_variables([], 0)


def _run(make: Any, traced: bool) -> None:
    # Variables as arguments would become tensors: the function has them from around it.
    work = make()
    if traced:
        tf.function(lambda: work() and None, autograph=False)()
    else:
        work()


def check_one_variable() -> None:
    variable = tf.Variable(float(hvd.rank()))
    assert hvd.broadcast_(variable, 1) is variable
    assert float(variable) == 1.0


def check_a_model_and_its_optimizer() -> None:
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2), keras.layers.Dropout(0.5)])
    optimizer = keras.optimizers.Adam(0.1 * (hvd.rank() + 1))
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)
    for variable in [*model.variables, *optimizer.variables]:
        alike(variable.numpy())
    assert abs(float(optimizer.learning_rate.numpy()) - 0.1) < 1e-7


def check_there_are_no_global_variables() -> None:
    with raises(UsageError, "broadcast_variables(model.variables, root_rank=0)"):
        hvd.broadcast_global_variables(0)


def check_objects() -> None:
    mine = {"rank": hvd.rank(), "list": [1, 2.5, None], "array": np.arange(3)}
    assert hvd.broadcast_object(mine, 1)["rank"] == 1
    assert hvd.broadcast_object_fn(1)(mine)["rank"] == 1
    assert [each["rank"] for each in hvd.allgather_object(mine)] == list(range(hvd.size()))
    with raises(UsageError, "TensorFlow 1"):
        hvd.broadcast_object(mine, session=object())


def check_objects_stay_outside_of_functions() -> None:
    for work in (lambda: hvd.broadcast_object(1), lambda: hvd.allgather_object(1)):
        with raises(UsageError, "inside of a tf.function"):
            tf.function(work, autograph=False)()


def check_numbers_as_tensors() -> None:
    found = [hvd.size_op(), hvd.rank_op(), hvd.local_rank_op(), hvd.local_size_op()]
    assert [int(each) for each in found] == [hvd.size(), hvd.rank(), hvd.rank(), hvd.size()]
    assert all(each.dtype == tf.int32 for each in found)
    assert int(hvd.process_set_included_op()) == 1


def check_farandole_keras_is_where_programs_with_tf_keras_look_for_it() -> None:
    ours, found = farandole.keras, farandole.tensorflow.keras
    missing = [name for name in ours.__all__ if not hasattr(found, name)]
    assert missing == [], missing
    assert found.DistributedOptimizer is ours.DistributedOptimizer
    assert found.__all__ == ours.__all__
    callbacks = farandole.tensorflow.keras.callbacks
    assert callbacks.__all__ == ours.callbacks.__all__
    for name in ours.callbacks.__all__:
        assert getattr(callbacks, name) is getattr(ours.callbacks, name)
        assert getattr(callbacks, name) is getattr(found.callbacks, name)

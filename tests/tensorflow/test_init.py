"""What importing farandole.tensorflow needs and brings."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import clean_environ, keras_on


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environ(TF_CPP_MIN_LOG_LEVEL="3", **env),
        capture_output=True,
        text=True,
        timeout=100.0,
        check=False,
    )


def test_without_tensorflow_the_extra_is_named() -> None:
    for module in ("farandole.tensorflow", "farandole.tensorflow.keras"):
        done = python(f"import sys; sys.modules['tensorflow'] = None; import {module}")
        assert "MissingExtraError" in done.stderr
        assert "pip install 'farandole[tensorflow]'" in done.stderr


def test_every_public_name_is_there_and_one_worker_needs_no_launcher() -> None:
    code = """
import farandole.tensorflow as hvd
missing = [name for name in hvd.__all__ if not hasattr(hvd, name)]
assert missing == [], missing
import tensorflow as tf
hvd.init()
assert (hvd.rank(), hvd.size()) == (0, 1)
x = tf.Variable([2.0])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(hvd.allreduce(x * 3.0))
tape = hvd.DistributedGradientTape(tape)
assert tape.gradient(loss, [x])[0].numpy() == [3.0]
hvd.broadcast_variables([x], 0)
assert hvd.mpi_ops._basics.rank() == 0
assert hvd.mpi_ops.allreduce is hvd.allreduce
assert hvd.util._executing_eagerly()
(again,) = hvd.util.refs_to_vars(hvd.util.vars_to_refs([x]))
assert again is x
layer = hvd.SyncBatchNormalization()
layer(tf.ones([2, 3]), training=True)
tf.compat.v1.disable_eager_execution()
try:
    hvd.allreduce(tf.ones([1]))
except ValueError as error:
    assert "Farandole works with TensorFlow 2" in str(error)
    print("done")
"""
    done = python(code, **keras_on("tensorflow"))
    assert done.stdout == "done\n", done.stderr

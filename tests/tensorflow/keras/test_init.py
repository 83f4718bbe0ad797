"""farandole.keras where programs with tf.keras look for it."""

from __future__ import annotations

from tests.tensorflow.test_init import python


def test_on_tensorflow_it_is_farandole_keras() -> None:
    code = """
import farandole.tensorflow.keras as hvd
import farandole.tensorflow.keras.callbacks as callbacks
import farandole.keras
missing = [name for name in farandole.keras.__all__ if not hasattr(hvd, name)]
assert missing == [], missing
assert hvd.DistributedOptimizer is farandole.keras.DistributedOptimizer
assert callbacks.MetricAverageCallback is farandole.keras.callbacks.MetricAverageCallback
assert hvd.callbacks.standard is farandole.keras.callbacks.standard
print("done")
"""
    done = python(code, KERAS_BACKEND="tensorflow")
    assert done.stdout == "done\n", done.stderr


def test_on_another_backend_it_says_what_to_do() -> None:
    done = python("import farandole.tensorflow.keras", KERAS_BACKEND="torch")
    assert "Keras runs on torch here. Set KERAS_BACKEND=tensorflow, or import" in done.stderr

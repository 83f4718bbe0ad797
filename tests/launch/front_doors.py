"""Checks of Horovod's names for Keras and TensorFlow, on Keras's backends."""

from __future__ import annotations

import keras
import pytest

import farandole.keras


def check_keras() -> None:
    import horovod.keras as hvd
    import horovod.keras.callbacks
    from horovod.keras.callbacks import MetricAverageCallback

    assert hvd is farandole.keras
    assert hvd.__name__ == "farandole.keras"
    assert horovod.keras.callbacks is farandole.keras.callbacks
    assert MetricAverageCallback is farandole.keras.callbacks.MetricAverageCallback
    import horovod.keras.elastic

    assert hvd.elastic is horovod.keras.elastic
    assert hvd.elastic.KerasState.__module__ == "farandole.keras.elastic"


def check_tensorflow() -> None:
    import horovod.tensorflow
    from horovod.tensorflow import DistributedGradientTape, SyncBatchNormalization

    import farandole.tensorflow

    assert horovod.tensorflow is farandole.tensorflow
    assert DistributedGradientTape is farandole.tensorflow.DistributedGradientTape
    assert SyncBatchNormalization is farandole.tensorflow.SyncBatchNormalization
    import horovod.tensorflow.elastic

    assert horovod.tensorflow.elastic.TensorFlowState.__module__ == "farandole.tensorflow.elastic"
    assert horovod.tensorflow._executing_eagerly() is True


def check_keras_of_tensorflow() -> None:
    if keras.backend.backend() != "tensorflow":
        with pytest.raises(ValueError, match="Keras runs on torch here"):
            import horovod.tensorflow.keras
        return
    import horovod.tensorflow.keras
    import horovod.tensorflow.keras.callbacks

    assert horovod.tensorflow.keras.__name__ == "farandole.tensorflow.keras"
    assert horovod.tensorflow.keras.callbacks.__name__ == "farandole.tensorflow.keras.callbacks"
    optimizer = farandole.keras.DistributedOptimizer
    assert horovod.tensorflow.keras.DistributedOptimizer is optimizer
    import horovod.tensorflow.keras.elastic

    states = horovod.tensorflow.keras.elastic.KerasState, horovod.tensorflow.keras.elastic.run
    assert states == (farandole.keras.elastic.KerasState, farandole.keras.elastic.run)

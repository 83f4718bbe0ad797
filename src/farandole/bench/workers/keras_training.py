"""The training that every contestant runs through Keras, so that only the communication differs.

`model.fit` is timed as a user calls it: compiled with Keras' defaults, on arrays, shuffled.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

if TYPE_CHECKING:
    from farandole.bench import keras_models
    from farandole.bench.workers.pace import Pace
else:
    # By path: `import farandole.bench` would bring farandole into the limit's processes.
    _spec = importlib.util.spec_from_file_location(
        "bench_keras_models", Path(__file__).parent.with_name("keras_models.py")
    )
    keras_models = importlib.util.module_from_spec(_spec)
    sys.modules["bench_keras_models"] = keras_models
    _spec.loader.exec_module(keras_models)

LEARNING_RATE = 0.01


def pin(rank: int) -> None:
    """Leave this process one core, chosen by its rank: all its threads, those to come included.

    With PJRT_NPROC=1 alone, two of JAX's threads were seen to compute.
    """
    cores = sorted(os.sched_getaffinity(0))
    core = cores[rank % len(cores)]
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def build(name: str) -> keras_models.Task:
    """Return the named task, the same weights in every process."""
    keras.utils.set_random_seed(1)
    return keras_models.task(name)


def sgd() -> Any:
    """Return the optimizer of all contestants: SGD without momentum, the least work of its own."""
    return keras.optimizers.SGD(LEARNING_RATE)


def finish(model: Any) -> None:
    """Return when the last step's results are there: JAX computes them after the call returned."""
    if keras.backend.backend() != "jax":
        return
    state = model._jax_state
    if not state:
        raise SystemExit("Keras keeps JAX's state elsewhere: these times would say nothing")
    # One by one: Keras wraps these containers, and jax.block_until_ready passes over what it does
    # not know without a word.
    for arrays in state.values():
        for array in arrays:
            array.block_until_ready()


def train(task: keras_models.Task, optimizer: Any, pace: Pace, *, rank: int) -> None:
    """Train on this rank's own synthetic data for as long as `pace` needs."""
    compile_model(task, optimizer)
    fit(task, pace, rank=rank)


def compile_model(task: keras_models.Task, optimizer: Any) -> None:
    """Compile as a user would, with Keras' defaults."""
    task.model.compile(
        optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )


def fit(task: keras_models.Task, pace: Pace, *, rank: int) -> None:
    """Train a compiled network on this rank's own synthetic data for as long as `pace` needs."""
    generator = np.random.default_rng(1000 + rank)
    num_samples = task.batch * pace.num_steps
    inputs = generator.standard_normal((num_samples, *task.sample_shape), dtype=np.float32)
    labels = generator.integers(task.num_classes, size=num_samples)
    # The beginning and not the end of batches: a callback for ends makes Keras fetch the loss
    # after each step, for which JAX would have to wait.
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs=None: pace.begin(batch)
    )
    task.model.fit(inputs, labels, batch_size=task.batch, verbose=0, callbacks=[clock])


def facts(model: Any, pace: Pace) -> dict[str, Any]:
    """Return what tells a training apart: its size, its settings, and its weights' checksum."""
    checksum = 0
    for variable in model.trainable_variables:
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(variable))
        checksum = zlib.crc32(array.tobytes(), checksum)
    return {
        "num_parameters": int(model.count_params()),
        "optimizer": f"SGD, learning rate {LEARNING_RATE}, no momentum",
        "weights_crc": checksum,
        "backend": keras.backend.backend(),
        "jit_compile": bool(model.jit_compile),
        "cores_used": round(pace.cores_used, 3),
    }

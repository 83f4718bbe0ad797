"""Keras programs on each backend, launched for real, and what is recorded of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import keras_on
from tests.recorder.launching import Recorded, launch

BACKENDS = ("torch", "tensorflow", "jax")
# Dense(8 -> 5), Dense(5 -> 3): kernels and biases.
PARAMETERS = 8 * 5 + 5 + 5 * 3 + 3

MODEL = """
import keras, numpy as np, random

def model(optimizer, **options):
    random.seed(1)  # for Keras's weights; its own set_random_seed imports TensorFlow for seconds
    made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(5, "relu"),
                             keras.layers.Dense(3)])
    made.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                 metrics=["accuracy"], **options)
    return made

def data(count, seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 8)).astype("float32")
    return x, (x.sum(1) > 0).astype("int32")

class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
    def __len__(self):
        return 3
    def __getitem__(self, n):
        return self.x[16 * n : 16 * n + 16], self.y[16 * n : 16 * n + 16]
"""
FIT = (
    MODEL
    + """
import farandole.keras as hvd

class Averages(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["loss"] = 0.5 + epoch  # as a callback that averages over the workers would

hvd.init()
trained = model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
# 44 samples: batches of 16, 16 and 12.
trained.fit(*data(44, seed=hvd.rank()), batch_size=16, epochs=1000, callbacks=[Averages()],
            validation_data=data(24, seed=9), verbose=0)
print("not reached")
"""
)


def figures(rank: Recorded, name: str) -> list[float]:
    """Return a column of which nothing is missing."""
    found = [value for value in rank.steps()[name] if value is not None]
    assert len(found) == len(rank.steps()[name])
    return found


@pytest.mark.ranks
@pytest.mark.timeout(300)  # TensorFlow and JAX take their time to start beside other tests
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_workers_in_a_fit_that_the_study_ends(tmp_path: Path, backend: str) -> None:
    # One thread for all of TensorFlow's operations, those included that wait for other workers.
    threads = {"TF_NUM_INTEROP_THREADS": "1"}
    stop = {"epochs": 4}
    launched = launch(tmp_path, FIT, np=2, stop=stop, **keras_on(backend), **threads)
    assert launched.code == 0, launched.output
    assert "not reached" not in launched.output
    assert "Traceback" not in launched.output
    first, second = launched.ranks
    steps = len(first.steps()["end_s"])
    # Agreed on after four epochs, at the first step or two later.
    assert 12 < steps <= 12 + 4
    assert len(second.steps()["end_s"]) == steps
    assert first.end["weights"] == second.end["weights"] is not None
    assert not set(first.setup["sample_hashes"]) & set(second.setup["sample_hashes"])
    for rank in (first, second):
        assert rank.end["stopped"] is True
        assert figures(rank, "samples") == ([16.0, 16.0, 12.0] * 6)[:steps]
        ends_s = figures(rank, "end_s")
        assert ends_s == sorted(ends_s)
        assert rank.setup["framework"] == "farandole.keras"
        assert (rank.setup["device"], rank.setup["parameters"]) == ("cpu", PARAMETERS)
        assert (rank.setup["batch_seen"], rank.setup["dataset_size"]) == (16, 88)
        # As far as 2 ms per batch reach, on a machine that may be busy.
        assert 4 <= len(rank.setup["sample_hashes"]) <= 16 + 16 + 12 + 16
        assert rank.setup["gradient_bytes_per_step"] == 4 * PARAMETERS
        assert rank.end["bytes_sent"]["gradients"] == steps * 4 * PARAMETERS
        for n, end_s in enumerate(ends_s):
            assert figures(rank, "ready_s")[n] <= figures(rank, "done_s")[n] <= end_s
            assert figures(rank, "exposed_s")[n] > 0
        data_s = rank.steps()["data_s"]
        # TensorFlow compiles a fit's first step before it asks for a batch.
        assert data_s[0] is None or backend != "tensorflow"
        assert all(value is not None and value >= 0 for value in data_s[1:])
        assert backend == "tensorflow" or all(value for value in data_s)
        optimizer_s = rank.steps()["optimizer_s"]
        assert all((value is not None) == (backend == "torch") for value in optimizer_s)
        (rate,) = rank.of("learning_rate")
        assert (rate["step"], rate["value"]) == (2, pytest.approx(0.01))
        epochs = rank.of("epoch")
        assert len(epochs) in (4, 5)
        for number, epoch in enumerate(epochs):
            # Noted with the third of its steps, by another call.
            assert ends_s[3 * number + 1] < epoch["end_s"]
            assert all(epoch["end_s"] < end_s for end_s in ends_s[3 * number + 3 :])
        assert rank.metrics("loss")[:2] == [0.5, 1.5]
        assert [line["epoch"] for line in rank.of("metric") if line["name"] == "loss"][:2] == [0, 1]
        for name in ("accuracy", "val_accuracy", "val_loss"):
            assert len(rank.metrics(name)) == len(epochs)
    norms = [line for rank in (first, second) for line in rank.of("noise")]
    seen = [(line["update"], line["step"], len(line["bytes"])) for line in norms]
    assert seen == [(10, 9, 1)] * 2
    # A mean is no longer than what it is the mean of, on average.
    own, together = (sum(line[name][0] for line in norms) for name in ("before", "after"))
    assert 0 < together <= own / 2


LOOPS = (
    MODEL
    + """
import sys

backend = keras.backend.backend()
x, y = data(40, seed=1)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# 1. Without Farandole's optimizer, and with an evaluation in the middle of each epoch: 3 steps.
class Evaluates(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            self.model.evaluate(x[:8], y[:8], verbose=0)
plain = model(keras.optimizers.Adam())
plain.evaluate(x, y, verbose=0)
plain.fit(Batches(x, y), verbose=0, shuffle=False, callbacks=[Evaluates()])
plain.predict(x, verbose=0)

# 2. Batch by batch: 2 steps.
for part in (slice(0, 10), slice(10, 17)):
    plain.train_on_batch(x[part], y[part])

# 3. Two batches make an update: 2 steps of 4 batches.
summing = model(keras.optimizers.SGD(0.01, gradient_accumulation_steps=2))
if backend == "tensorflow":
    import tensorflow as tf
    summing.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(10), verbose=0)
else:
    summing.fit(x, y, batch_size=10, verbose=0)

# 4. A loop of its own: 3 updates.
own = model(keras.optimizers.SGD(0.01))
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(own.trainable_variables)
if backend == "torch":
    import torch
    def step(x, y):
        own.zero_grad()
        loss(torch.as_tensor(y), own(torch.as_tensor(x))).backward()
        with torch.no_grad():
            optimizer.apply([v.value.grad for v in own.trainable_variables])
elif backend == "tensorflow":
    import tensorflow as tf
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, own(x, training=True))
        variables = own.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
else:
    import jax
    from keras.src.utils.tracking import TrackedList
    from farandole.recorder.keras import Device
    many = lambda a: jax.lax.fori_loop(0, 300, lambda _, b: jax.numpy.tanh(b @ b), a)
    slow = jax.jit(many)(jax.numpy.ones((300, 300)))
    Device("jax", slow).end(TrackedList([slow]))  # as Keras keeps its weights
    print("waited", slow.is_ready())
    def value(trainable, x, y):
        predicted, _ = own.stateless_call(trainable, [], x)
        return loss(y, predicted)
    @jax.jit
    def compiled(state, x, y):
        trainable, variables = state
        gradients = jax.grad(value)(trainable, x, y)
        return optimizer.stateless_apply(variables, gradients, trainable)
    state = [v.value for v in own.trainable_variables], [v.value for v in optimizer.variables]
    def step(x, y):
        global state
        state = compiled(state, x, y)
for part in range(3):
    step(x[part * 8 : part * 8 + 8], y[part * 8 : part * 8 + 8])

# 5. Several steps in one execution, 5 of them in an epoch; the study ends it in the second.
if backend == "torch":
    last = model(keras.optimizers.SGD(0.01))
else:
    last = model(keras.optimizers.SGD(0.01), steps_per_execution=2)
try:
    last.fit(x, y, batch_size=8, epochs=1000, verbose=0)
finally:
    print("on the way out")
print("not reached")
"""
)


@pytest.mark.ranks
@pytest.mark.timeout(300)  # TensorFlow and JAX take their time to start beside other tests
@pytest.mark.parametrize("backend", BACKENDS)
def test_other_ways_to_train(tmp_path: Path, backend: str) -> None:
    # 3 updates; the first is not yet known to lead, after those of the batches.
    own = 0 if backend == "jax" else 2
    before = 3 + 2 + 2 + own
    launched = launch(
        tmp_path, LOOPS, launcher="python", stop={"steps": before + 8}, **keras_on(backend)
    )
    assert launched.code == 0, launched.output
    assert "on the way out" in launched.output
    assert "not reached" not in launched.output
    assert ("waited True" in launched.output) == (backend == "jax")
    (rank,) = launched.ranks
    assert rank.end["stopped"] is True
    assert rank.setup["framework"] == "keras"
    samples = rank.steps()["samples"]
    expected: list[Any] = [16.0, 16.0, 8.0, 10.0, 7.0, 20.0, 20.0]
    # Nothing tells how many samples a loop of its own has on torch: it has no DataLoader.
    expected += {"torch": [0.0] * 2, "tensorflow": [8.0] * 2, "jax": []}[backend]
    assert samples[:before] == expected
    # 5 batches; with two steps in one execution the last one is alone.
    assert samples[before:] == [8.0] * 8
    ends_s = figures(rank, "end_s")
    assert ends_s == sorted(ends_s)
    assert len(ends_s) == before + 8
    assert any("jax.jit" in note for note in rank.notes) == (backend == "jax")
    assert any("steps_per_execution" in note for note in rank.notes) == (backend != "torch")
    assert rank.end["weights"] is not None

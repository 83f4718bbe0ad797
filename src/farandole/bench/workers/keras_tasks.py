"""The tasks in Keras, on the backend that KERAS_BACKEND names.

`model.fit` is timed as a user calls it: compiled with Keras' defaults, on arrays, shuffled.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import keras
import numpy as np
from keras import layers

from .libraries import LEARNING_RATE, connect
from .measure import Task

# A call of fit prepares its data during its first step.
_FIT_WARMUP = 2


def train(given: dict[str, Any]) -> dict[str, Any]:
    """Time steps of a distributed `fit`, or of plain Keras where the library is "none".

    Options: library, model, warmup, steps, block, pin, meet (after each step).
    """
    with connect(given) as world:
        if given["pin"]:
            pin(world.rank)
        task = build(given["model"])
        sgd, clock = keras.optimizers.SGD(LEARNING_RATE), StepClock(given, task.model)
        if given["library"] == "none":
            clock.meet, clock.meet_each_step = world.barrier, given["meet"]
        else:
            # No barrier: every step's sum of gradients is one.
            sgd = world.hvd.DistributedOptimizer(sgd)
        compile_model(task.model, sgd)
        fit(task, clock, rank=world.rank)
        found = facts(task.model, clock)
    return {"rank": world.rank, "series": {"step": clock.times_s}, "facts": found}


def overhead(given: dict[str, Any]) -> dict[str, Any]:
    """Time one worker through DistributedOptimizer and plain Keras in turns, in one process.

    What the wrapper costs is far below what two launches differ by. The series "ratio" has one
    value per pair of neighbouring turns, each a `fit` of `turn` timed steps. Options: library,
    model, warmup, steps, block, turn, pin.
    """
    with connect(given) as world:
        if given["pin"]:
            pin(world.rank)
        tasks = {wrapped: build(given["model"]) for wrapped in (True, False)}
        for wrapped, task in tasks.items():
            sgd = keras.optimizers.SGD(LEARNING_RATE)
            compile_model(task.model, world.hvd.DistributedOptimizer(sgd) if wrapped else sgd)

        def take_turn(wrapped: bool, warmup: int) -> StepClock:
            turn = {**given, "warmup": warmup, "steps": given["turn"]}
            clock = StepClock(turn, tasks[wrapped].model)
            fit(tasks[wrapped], clock, rank=0)
            return clock

        for wrapped in tasks:
            take_turn(wrapped, given["warmup"])
        ratios = []
        for pair in range(max(1, given["steps"] // (2 * given["turn"]))):
            # Now one, now the other goes first, so that a drift of the machine cancels.
            order = (True, False) if pair.bit_count() % 2 == 0 else (False, True)
            clocks = {wrapped: take_turn(wrapped, _FIT_WARMUP) for wrapped in order}
            ratios.append(median(clocks[True].times_s) / median(clocks[False].times_s))
        found = facts(tasks[True].model, clocks[True])
    return {"rank": 0, "series": {"ratio": ratios}, "facts": found}


class StepClock:
    """Time the steps of `fit` in blocks, each of which ends when its last result is there.

    A step is timed from its beginning to the beginning of the next one, so that fetching data and
    whatever else Keras does between steps is part of it.
    """

    def __init__(
        self, given: dict[str, int], model: Any, finish: Callable[[Any], None] | None = None
    ) -> None:
        """Prepare to time `steps` steps after `warmup` steps that do not count.

        Args:
            given: steps, warmup, and `block`: steps between two looks at the clock; of a block,
                the mean step is kept.
            model: is waited for where a block ends, by `finish`.
        """
        self._steps, self._warmup, self._block = given["steps"], given["warmup"], given["block"]
        if self._steps % self._block or not self._warmup:
            raise ValueError(f"{self._steps} steps in blocks of {self._block}: {given}")
        self.num_steps = self._warmup + self._steps + 1
        """Steps that `fit` must run: one more begins, because it ends the last timed one."""
        self.times_s: list[float] = []
        """Seconds per step of each block."""
        self.cores_used = 0.0
        """CPU time of this process over the time that passed while steps were timed."""
        self.meet: Callable[[], None] = lambda: None
        """Called where the first step begins, and where the first timed step does, because ranks
        compile for different times."""
        self.meet_each_step = False
        self._finish = partial(finish or wait_for_results, model)
        self._first = self._last = (0.0, 0.0)

    def begin(self, index: int) -> None:
        """Note that step `index` begins, counted from 0."""
        if index == 0:
            self.meet()
            return
        timed = index - self._warmup
        due = 0 <= timed <= self._steps and timed % self._block == 0
        if due or self.meet_each_step:
            self._finish()
        if timed == 0 or self.meet_each_step:
            self.meet()
        if due:
            now = (time.perf_counter(), time.process_time())
            if timed == 0:
                self._first = now
            else:
                self.times_s.append((now[0] - self._last[0]) / self._block)
                self.cores_used = (now[1] - self._first[1]) / (now[0] - self._first[0])
            self._last = now


def pin(rank: int) -> None:
    """Leave this process one core, chosen by its rank: all its threads, those to come included.

    With PJRT_NPROC=1 alone, two of JAX's threads were seen to compute.
    """
    cores = sorted(os.sched_getaffinity(0))
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[rank % len(cores)]})


def build(name: str) -> Task:
    """Return the named task, the same weights in every process; layers and sizes as in PyTorch."""
    keras.utils.set_random_seed(1)
    dense = [layers.Dense(2048, activation="relu"), layers.Dense(2048, activation="relu")]
    task = Task(None, batch=32, sample_shape=(784,))
    if name == "cnn":
        dense = [layers.Conv2D(filters, 3, activation="relu") for filters in (32, 64)]
        dense += [layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(128, activation="relu")]
        # Channels last on every backend, because that is what Keras does by default.
        task = Task(None, batch=128, sample_shape=(28, 28, 1))
    model = keras.Sequential([keras.Input(task.sample_shape), *dense, layers.Dense(10)])
    return Task(model, task.batch, task.sample_shape)


def compile_model(model: Any, optimizer: Any) -> None:
    """Compile as a user would, with Keras' defaults."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)


def fit(task: Task, clock: StepClock, *, rank: int) -> None:
    """Train a compiled network on this rank's own synthetic data for as long as `clock` needs."""
    generator = np.random.default_rng(1000 + rank)
    num_samples = task.batch * clock.num_steps
    inputs = generator.standard_normal((num_samples, *task.sample_shape), dtype=np.float32)
    labels = generator.integers(task.num_classes, size=num_samples)
    # The beginning and not the end of batches: a callback for ends makes Keras fetch the loss
    # after each step, for which JAX would have to wait.
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs=None: clock.begin(batch)
    )
    task.model.fit(inputs, labels, batch_size=task.batch, verbose=0, callbacks=[callback])


def wait_for_results(model: Any) -> None:
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


def facts(model: Any, clock: StepClock) -> dict[str, Any]:
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
        "cores_used": round(clock.cores_used, 3),
    }

"""Keras: its networks, the clock of `fit`, waiting for JAX, and real launches of its rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from farandole.bench.plan import MODELS, Settings, groups
from farandole.bench.run import WORKERS, LaunchRecord, launch
from tests.conftest import clean_environ, keras_on

# In a process of its own: a process has one backend of Keras, and this one shall have none.
_SCRIPT = """\
import json, os, sys
sys.path.append(sys.argv[1])
import numpy as np
from workers import keras_tasks, measure
from workers.keras_tasks import StepClock

found = {"waited": 0}
for name in ("mlp", "cnn"):
    task = keras_tasks.build(name)
    outputs = task.model(np.zeros((2, *task.sample_shape), "float32"))
    found[name] = [task.model.count_params(), list(outputs.shape), task.batch]

class Array:
    def block_until_ready(self):
        found["waited"] += 1

model = task.model
try:
    model._jax_state = None
    keras_tasks.wait_for_results(model)
except SystemExit as error:
    found["error"] = str(error)
model._jax_state = {"trainable_variables": [Array(), Array()], "metrics_variables": [Array()]}
found["wrapped"] = type(model._jax_state) is not dict
keras_tasks.wait_for_results(model)
keras_tasks.pin(3)
found["cores"] = {len(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")} == {1}

class Time:
    now_s = 0.0
    def perf_counter(self):
        return self.now_s
    def process_time(self):
        return self.now_s / 2

keras_tasks.time = Time()

def played(warmup, steps, block, seconds=None, meet_each_step=False):
    calls = []
    given = {"warmup": warmup, "steps": steps, "block": block}
    clock = StepClock(given, model, finish=lambda _: calls.append(["finish", index]))
    clock.meet, clock.meet_each_step = lambda: calls.append(["meet", index]), meet_each_step
    for index in range(clock.num_steps):
        clock.begin(index)
        keras_tasks.time.now_s += seconds[index] if seconds else 1.0
    return [clock.times_s, calls, clock.cores_used]

found["steps"] = played(2, 3, 1, [50.0, 40.0, 1.0, 2.0, 3.0, 60.0])
found["blocks"] = played(1, 4, 2, [9.0, 1.0, 3.0, 5.0, 6.0, 9.0])
found["barrier"] = played(1, 2, 2, meet_each_step=True)
try:
    played(1, 5, 2)
except ValueError as error:
    found["refused"] = str(error)
measure.forbid_farandole()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Keras writes its settings into its home unless it finds some there.
    home = str(tmp_path_factory.mktemp("keras"))
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(WORKERS.parent)],
        env=clean_environ(**keras_on("jax"), KERAS_HOME=home, JAX_PLATFORMS="cpu"),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_networks_have_the_sizes_of_those_in_pytorch(found: Any) -> None:
    for name, batch in (("mlp", 32), ("cnn", 128)):
        assert found[name] == [MODELS[name][1], [2, 10], batch]


def test_every_array_is_waited_for_and_every_thread_is_pinned(found: Any) -> None:
    assert found["wrapped"], "Keras no longer wraps: this test has lost its trap"
    assert found["waited"] == 3
    assert "these times would say nothing" in found["error"]
    assert found["cores"]


def test_steps_are_timed_in_blocks_after_the_warm_up(found: Any) -> None:
    # The clock looks, and waits for results, where a block ends; free ranks meet at the start and
    # where timing starts; with a barrier they wait for each step's result and then meet.
    each, blocks, barrier = (found[name] for name in ("steps", "blocks", "barrier"))
    assert (each[0], each[2]) == ([1.0, 2.0, 3.0], 0.5)
    assert [index for word, index in each[1] if word == "meet"] == [0, 2]
    assert blocks[0] == [2.0, 5.5]
    assert [index for word, index in blocks[1] if word == "finish"] == [1, 3, 5]
    both = [[word, index] for index in (1, 2, 3) for word in ("finish", "meet")]
    assert barrier[:2] == [[1.0], [["meet", 0], *both]]
    assert "5 steps in blocks of 2" in found["refused"]


def _launch(group: str, name: str, **options: int) -> LaunchRecord:
    every = groups("all", Settings(framework="keras", models=("mlp", "cnn")))
    (found,) = (
        one
        for each in every
        for one in each.implementations
        if (each.key, one.name) == (group, name)
    )
    # JAX needs most of a second for a step of the small network.
    short = {**found.options, "warmup": 1, "steps": 2, "block": min(2, found.options["block"])}
    # A launch inherits no path of Python's; this one spares it what no test needs.
    lean = {"PYTHONPATH": os.environ["PYTHONPATH"], **keras_on(found.options["backend"])}
    environment = {**found.environment, **lean}
    one = replace(found, options=short | options, environment=environment)
    return launch(one, round_number=1, time_limit_s=100)


@pytest.mark.ranks
def test_farandole_trains_the_perceptron_together() -> None:
    # The others start the same worker; that each backend averages is tested in tests/keras.
    record = _launch("train-keras-tensorflow-mlp", "farandole")
    assert record.failure is None
    assert record.values["step"] > 0
    assert record.facts["backend"] == "tensorflow"
    assert record.facts["num_parameters"] == 5_824_522


@pytest.mark.ranks
def test_one_worker_takes_turns_with_plain_keras() -> None:
    record = _launch("overhead-keras-torch-mlp", "in turns", turn=1)
    assert record.failure is None
    assert record.values["ratio"] > 0
    assert record.facts["backend"] == "torch"


@pytest.mark.ranks
@pytest.mark.soak
def test_the_limit_trains_the_small_network_without_farandole() -> None:
    # The worker itself fails if it has imported farandole.
    record = _launch("train-keras-jax-cnn", "limit, free")
    assert record.failure is None
    assert record.values["step"] > 0
    assert record.facts["num_parameters"] == 1_199_882
    assert record.facts["jit_compile"] is True

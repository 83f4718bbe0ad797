"""Waiting for JAX, which computes after the call returned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from farandole.bench.contestant import WORKERS
from tests.conftest import clean_environ, keras_on

# In a process of its own: a process has one backend of Keras, and this one shall have none.
_SCRIPT = """\
import json, os, sys
sys.path.insert(0, sys.argv[1])
import keras, keras_training, pace
found = {"waited": 0}

class Array:
    def block_until_ready(self):
        found["waited"] += 1

model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
try:
    model._jax_state = None
    keras_training.finish(model)
except SystemExit as error:
    found["error"] = str(error)
model._jax_state = {"trainable_variables": [Array(), Array()], "metrics_variables": [Array()]}
found["wrapped"] = type(model._jax_state) is not dict
keras_training.finish(model)
keras_training.pin(3)
found["cores"] = {len(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")} == {1}
print(json.dumps(found))
"""


def test_every_array_is_waited_for_and_every_thread_is_pinned(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(WORKERS)],
        env=clean_environ(**keras_on("jax"), KERAS_HOME=str(tmp_path), JAX_PLATFORMS="cpu"),
        capture_output=True,
        check=True,
        timeout=100,
    )
    found = json.loads(process.stdout)
    assert found["wrapped"], "Keras no longer wraps: this test has lost its trap"
    assert found["waited"] == 3
    assert "these times would say nothing" in found["error"]
    assert found["cores"]

"""The networks in Keras have the sizes of those in PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from farandole.bench import plan
from tests.conftest import clean_environ, keras_on

# In a process of its own: a process has one backend of Keras, and this one shall have none.
_SCRIPT = """\
import json
import keras, numpy as np
from farandole.bench import keras_models
found = {}
for name in ("mlp", "cnn"):
    task = keras_models.task(name)
    outputs = task.model(np.zeros((2, *task.sample_shape), "float32"))
    found[name] = [task.model.count_params(), list(outputs.shape), task.batch]
try:
    keras_models.task("vgg")
except ValueError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    # Keras writes its settings into its home unless it finds some there.
    home = str(tmp_path_factory.mktemp("keras"))
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=clean_environ(**keras_on("torch"), KERAS_HOME=home),
        capture_output=True,
        check=True,
        timeout=100,
    )
    result: dict[str, object] = json.loads(process.stdout)
    return result


@pytest.mark.parametrize(("name", "batch"), [("mlp", 32), ("cnn", 128)])
def test_parameters_outputs_and_batch(found: dict[str, object], name: str, batch: int) -> None:
    assert found[name] == [plan.PARAMETERS[name], [2, 10], batch]


def test_an_unknown_network_lists_the_known_ones(found: dict[str, object]) -> None:
    assert "'vgg': mlp, cnn" in str(found["error"])

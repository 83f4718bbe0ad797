"""The networks in Keras, mnist_cnn and pilotnet, have their sizes and take images in bytes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import clean_environ, keras_on

# In one process of its own: a process has one backend of Keras, and this one shall have none.
_SCRIPT = """\
import json, sys
import farandole.labs.models
early = [name for name in ("keras", "torch") if name in sys.modules]
import numpy as np
from farandole.labs.models import mnist_cnn, pilotnet
found = {"early": early}
for name, module, shape in (
    ("mnist_cnn", mnist_cnn, (28, 28, 1)), ("pilotnet", pilotnet, (*pilotnet.SIZE, 3))
):
    model = getattr(module, name)()
    images = np.full((2, *shape), 255, "uint8")
    first = model.layers[0](images)
    outputs = np.asarray(model.predict_on_batch(images))
    found[name] = {
        "parameters": [module.PARAMETERS, model.count_params()],
        "shape": outputs.shape,
        "sums": outputs.sum(axis=1).tolist(),
        "white": float(np.asarray(first).max()),
        "layers": [layer.name for layer in model.layers],
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    # Keras writes its settings into its home unless it finds some there.
    home = str(tmp_path_factory.mktemp("keras"))
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=clean_environ(**keras_on("torch"), KERAS_HOME=home),
        capture_output=True,
        check=True,
        timeout=100,
        text=True,
    )
    parsed: dict[str, dict[str, object]] = json.loads(process.stdout)
    return parsed


def test_the_package_brings_no_framework(found: dict[str, dict[str, object]]) -> None:
    assert found["early"] == []


def test_the_classic_network_for_mnist(found: dict[str, dict[str, object]]) -> None:
    network = found["mnist_cnn"]
    assert network["parameters"] == [1_199_882, 1_199_882]
    assert network["shape"] == [2, 10]
    assert network["sums"] == pytest.approx([1, 1], abs=1e-5)
    assert network["white"] == pytest.approx(1)
    assert [name for name in network["layers"] if "dropout" in name] == ["dropout", "dropout_1"]  # type: ignore[attr-defined]


def test_pilotnet(found: dict[str, dict[str, object]]) -> None:
    network = found["pilotnet"]
    # Kernels and biases of five convolutions, then 64 channels of 1x18 to 100, 50, 10 and 1.
    convolutions = 24 * 76 + 36 * (24 * 25 + 1) + 48 * (36 * 25 + 1) + 64 * (48 * 9 + 1)
    convolutions += 64 * (64 * 9 + 1)
    dense = 100 * (64 * 18 + 1) + 50 * 101 + 10 * 51 + 11
    assert network["parameters"] == [convolutions + dense] * 2
    assert network["shape"] == [2, 1]
    assert network["white"] == pytest.approx(1)

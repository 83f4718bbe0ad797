"""CIFAR-10, from npz files or from its original python batches; patterns in its place."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError
from farandole.labs.data import patterns
from farandole.labs.data.batches import read_batch
from farandole.labs.data.folder import existing_folder, first_folder, wrong_shape
from farandole.labs.data.samples import (
    Images,
    Labels,
    Pixels,
    check_counts,
    checked_labels,
    facts,
    subset,
    wanted,
)

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

_SHAPE = (32, 32, 3)
_NUM_CLASSES = 10
_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_BELOW = ("cifar-10-batches-py",)
_EXPECTED = (
    "data_batch_1 to data_batch_5 and test_batch, CIFAR-10's python batches, in the folder or in "
    "cifar-10-batches-py/; or data_batch_*.npz or train*.npz, and test*.npz, with the arrays x "
    "(N, 32, 32, 3) and y (N)"
)
_GENERATED = "generated patterns in CIFAR-10's shape"

_Pair = tuple[Pixels, Labels]


def load_cifar10(
    folder: Path | str | None = None, *, samples: int = 0, test_samples: int = 0
) -> Images:
    """Load CIFAR-10, or generated patterns in its shape.

    Args:
        folder: holds the python batches or npz files; None for the patterns.
        samples: train on so many, the same in every run; 0 for all.
        test_samples: test on so many; 0 for all.

    Raises:
        DataError: the folder holds something else.
        UsageError: there are not so many samples.
    """
    if folder is None:
        return _generate(samples, test_samples)
    images = _read(existing_folder(folder, "CIFAR-10"))
    return subset(images, samples=samples, test_samples=test_samples)


def describe_cifar10(folder: Path | str | None = None) -> DataFacts:
    """Look at the data as a whole, as `load_cifar10` does, and say what they are."""
    if folder is None:
        return facts(source=_GENERATED, train=patterns.TRAIN, test=patterns.TEST, shape=_SHAPE)
    return load_cifar10(folder).facts


def _generate(samples: int, test_samples: int) -> Images:
    train = wanted(samples, patterns.TRAIN, "training", "--samples")
    test = wanted(test_samples, patterns.TEST, "test", "--test-samples")
    x_train, y_train = patterns.draw(train)
    x_test, y_test = patterns.draw(test, test=True)
    return Images(
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        source=_GENERATED,
        classes=tuple(f"pattern {number}" for number in range(_NUM_CLASSES)),
    )


def _read(folder: Path) -> Images:
    train, test = sorted(folder.glob("data_batch_*.npz")), sorted(folder.glob("test*.npz"))
    train = train or sorted(folder.glob("train*.npz"))
    if train and test:
        return _images(folder, train, test, _read_npz, _npz_classes(folder))
    batches = first_folder(folder, _BELOW, (*_BATCHES, "test_batch"))
    if batches is None:
        raise wrong_shape(folder, "a folder with CIFAR-10", _EXPECTED)
    train = [batches / name for name in _BATCHES if (batches / name).is_file()]
    test = [batches / "test_batch"]
    if not train or not test[0].is_file():
        missing = "test_batch" if train else "data_batch_1 to data_batch_5"
        raise wrong_shape(batches, f"all of CIFAR-10: {missing} is missing", _EXPECTED)
    return _images(folder, train, test, _read_python, _python_classes(batches))


def _images(
    folder: Path,
    train: Sequence[Path],
    test: Sequence[Path],
    read: Callable[[Path], _Pair],
    classes: tuple[str, ...],
) -> Images:
    x_train, y_train = _join([read(path) for path in train])
    x_test, y_test = _join([read(path) for path in test])
    return Images(
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        source="CIFAR-10 from the given folder",
        classes=classes,
    )


def _join(pairs: Sequence[_Pair]) -> _Pair:
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])


def _read_npz(path: Path) -> _Pair:
    try:
        # No pickle: a folder of data must not run code.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            missing = [name for name in ("x", "y") if name not in arrays]
            if missing:
                raise DataError(
                    f"{path}: expected the arrays x and y, found {', '.join(arrays) or 'none'}."
                )
            x, y = arrays["x"], arrays["y"]
    except DataError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not an npz file, or is damaged: {error}") from None
    return _checked(x, y, path)


def _read_python(path: Path) -> _Pair:
    batch = read_batch(path)
    if b"data" not in batch or b"labels" not in batch:
        keys = ", ".join(key.decode(errors="replace") for key in batch) or "nothing"
        raise DataError(f"{path}: expected a dictionary with data and labels, found {keys}.")
    flat = np.asarray(batch[b"data"])
    if flat.ndim != 2 or flat.shape[1] != np.prod(_SHAPE):
        raise DataError(
            f"{path}: expected rows of {np.prod(_SHAPE)} bytes, found an array of shape "
            f"{flat.shape}."
        )
    # A row holds the red plane, then green, then blue.
    x = flat.reshape(-1, _SHAPE[2], *_SHAPE[:2]).transpose(0, 2, 3, 1)
    return _checked(x, np.asarray(batch[b"labels"]), path)


def _checked(x: NDArray[Any], y: NDArray[Any], path: Path) -> _Pair:
    if x.dtype != np.uint8 or x.shape[1:] != _SHAPE:
        raise DataError(
            f"{path}: expected images as uint8 of shape (N, 32, 32, 3), found {x.dtype} of shape "
            f"{x.shape}."
        )
    labels = checked_labels(y, _NUM_CLASSES, str(path))
    check_counts(len(x), len(labels), f"{path} (images)", f"{path} (labels)")
    return x, labels


def _npz_classes(folder: Path) -> tuple[str, ...]:
    try:
        names = json.loads((folder / "classes.json").read_text())
    except (OSError, ValueError):
        return _CLASSES
    return _names(names)


def _python_classes(folder: Path) -> tuple[str, ...]:
    path = folder / "batches.meta"
    if not path.is_file():
        return _CLASSES
    return _names(read_batch(path).get(b"label_names"))


def _names(found: Any) -> tuple[str, ...]:
    """Take names as a file gives them, where it gives ten; they are for people to read only."""
    if not isinstance(found, list) or len(found) != _NUM_CLASSES:
        return _CLASSES
    return tuple(
        name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in found
    )

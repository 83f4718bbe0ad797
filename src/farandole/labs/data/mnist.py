"""MNIST, from its four idx files; scikit-learn's digits in its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError, MissingExtraError
from farandole.labs.data.folder import existing_folder, first_folder, wrong_shape
from farandole.labs.data.idx import read_idx
from farandole.labs.data.samples import Images, Labels, Pixels, check_counts, checked_labels, subset

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

_SIDE = 28
_CLASSES = tuple("0123456789")
# torchvision leaves the files in the last one, below the folder that it was given.
_BELOW = ("raw", "MNIST/raw")
_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
_EXPECTED = (
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, each as it is or with .gz, in the folder, in raw/ or in MNIST/raw/"
)
_DIGITS_TEST = 360  # a fifth


def load_mnist(
    folder: Path | str | None = None, *, samples: int = 0, test_samples: int = 0
) -> Images:
    """Load MNIST, or scikit-learn's digits in MNIST's size.

    Args:
        folder: holds the four idx files; None for the digits.
        samples: train on so many, the same in every run; 0 for all.
        test_samples: test on so many; 0 for all.

    Raises:
        DataError: the folder holds something else.
        UsageError: there are not so many samples.
    """
    images = _digits() if folder is None else _read(existing_folder(folder, "MNIST"))
    return subset(images, samples=samples, test_samples=test_samples)


def describe_mnist(folder: Path | str | None = None) -> DataFacts:
    """Look at the data as a whole, as `load_mnist` does, and say what they are."""
    return load_mnist(folder).facts


def _read(folder: Path) -> Images:
    paths = _find(folder)
    x_train, y_train = _read_pair(paths[0], paths[1])
    x_test, y_test = _read_pair(paths[2], paths[3])
    return Images(
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        source="MNIST from the given folder",
        classes=_CLASSES,
    )


def _find(folder: Path) -> list[Path]:
    candidates = [_spellings(part) for part in _PARTS]
    found = first_folder(folder, _BELOW, [name for names in candidates for name in names])
    if found is None:
        raise wrong_shape(folder, "a folder with MNIST", _EXPECTED)
    paths = []
    for part, names in zip(_PARTS, candidates, strict=True):
        path = next((found / name for name in names if (found / name).is_file()), None)
        if path is None:
            raise wrong_shape(found, f"all of MNIST: {part}-ubyte is missing", _EXPECTED)
        paths.append(path)
    return paths


def _spellings(part: str) -> list[str]:
    """List the names of a file; some copies have a dot where the original has a dash."""
    kind = part.rpartition("-")
    names = [f"{part}-ubyte", f"{kind[0]}.{kind[2]}-ubyte"]
    return [name + ending for name in names for ending in ("", ".gz")]


def _read_pair(images: Path, labels: Path) -> tuple[Pixels, Labels]:
    x = read_idx(images, dimensions=3)
    y = read_idx(labels, dimensions=1)
    check_counts(len(x), len(y), images.name, labels.name)
    if x.shape[1:] != (_SIDE, _SIDE):
        raise DataError(
            f"{images}: expected images of {_SIDE}x{_SIDE}, found {x.shape[1]}x{x.shape[2]}."
        )
    return x[..., np.newaxis], checked_labels(y, len(_CLASSES), str(labels))


def _digits() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError(
            "Without --data the mnist lab takes the digits that come with scikit-learn, which is "
            "not installed. Use --data with MNIST, or: pip install 'farandole[labs]'"
        ) from None
    digits = load_digits()
    x = _enlarge(digits.images)[..., np.newaxis]
    y = digits.target.astype(np.int64)
    # The last fifth: images near each other seem to come from one hand. A nearest neighbour gets
    # 0.956 of these right, and 0.98 to 0.99 in a random split, which would leave less to learn.
    train = len(y) - _DIGITS_TEST
    return Images(
        x_train=x[:train],
        y_train=y[:train],
        x_test=x[train:],
        y_test=y[train:],
        source="scikit-learn's digits, enlarged from 8x8 to 28x28",
        classes=_CLASSES,
    )


def _enlarge(images: NDArray[np.float64]) -> Pixels:
    """Turn 8x8 pixels of 0 to 16 into 28x28 of 0 to 255, linearly between the pixels' centres."""
    side = images.shape[1]
    places = (np.arange(_SIDE) + 0.5) * side / _SIDE - 0.5
    weights = np.stack([np.interp(places, np.arange(side), row) for row in np.eye(side)], axis=1)
    enlarged = weights @ images @ weights.T * (255 / 16)
    return np.asarray(enlarged.round(), dtype=np.uint8)

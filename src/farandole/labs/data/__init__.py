"""The labs' data: what a user brings, or generated images in its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from farandole.errors import MissingExtraError, UsageError
from farandole.labs.data import generated
from farandole.labs.data.files import AGE_GROUPS, DIGITS, LAYOUTS, MNIST_SIDE, Layout
from farandole.labs.data.generated import Generated
from farandole.labs.data.images import Augmentation, ImageFiles, Images, contact_sheet

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

__all__ = [
    "AGE_GROUPS",
    "Augmentation",
    "Images",
    "describe_caltech",
    "describe_cifar10",
    "describe_driving",
    "describe_faces",
    "describe_fruits",
    "describe_mnist",
    "draw_samples",
    "load_caltech",
    "load_cifar10",
    "load_driving",
    "load_faces",
    "load_fruits",
    "load_mnist",
]

_SIZE = 128
# Networks halve an image five times.
_LEAST_SIZE = 32
# To see whether a file can be read, a small image will do: JPEGs are decoded at an eighth.
_LOOK = (16, 16)
_DIGITS_TEST = 360  # a fifth
# Samples in a report, and their side where they have no size of their own.
_NUM_DRAWN, _DRAWN = 16, 80


@dataclass(frozen=True, slots=True)
class _DataSet:
    """One of the labs' data sets."""

    layout: Layout
    stand_in: Generated | None
    """Used where no folder is given; None: scikit-learn's digits."""
    shape: tuple[int, int] | None = None
    """Height and width; None: square, of any size."""

    def load(
        self,
        folder: Path | str | None = None,
        *,
        samples: int = 0,
        test_samples: int = 0,
        size: int = _SIZE,
    ) -> Images:
        """Load the data set from a folder, or what stands in for it.

        Args:
            folder: the user's data; None for generated images.
            samples: to train on, the same in every run; 0 for all.
            test_samples: to test on; 0 for all.
            size: pixels of a side, for fruits, caltech and faces; the others have one size.

        Raises:
            DataError: the folder holds something else, or most images cannot be read.
            UsageError: there are fewer samples, or images would be too small.
        """
        if size < _LEAST_SIZE:
            raise UsageError(
                f"You asked for images of {size} pixels a side (--image-size {size}), and the "
                f"networks need {_LEAST_SIZE} at least. Use --image-size {_LEAST_SIZE} or more."
            )
        return self.found(folder).read(self.shape or (size, size), samples, test_samples)

    def describe(self, folder: Path | str | None = None) -> DataFacts:
        """Look at the whole data set, as `load` reads it, and describe it."""
        # Imported late: every worker loads data, and needs nothing else of a lab.
        from farandole.labs.lab import DataFacts

        found = self.found(folder)
        height, width = self.shape or (_SIZE, _SIZE)
        if isinstance(found, Generated):
            each = max(1, len(found.classes))  # they take turns: there are as many of each
            return DataFacts(
                source=found.source,
                train=found.train,
                test=found.test,
                sample=f"{height}x{width} RGB",
                class_counts=dict.fromkeys(
                    found.classes, (found.train // each, found.test // each)
                ),
            )
        look = found.read(_LOOK)
        return DataFacts(
            source=look.source,
            train=len(look.y_train),
            test=len(look.y_test),
            sample=f"{height}x{width} {'grey' if look.x_train.shape[-1] == 1 else 'RGB'}",
            skipped=look.skipped,
            class_counts={
                name: (int((look.y_train == label).sum()), int((look.y_test == label).sum()))
                for label, name in enumerate(look.classes)
            },
            sides=look.sides,
        )

    def found(self, folder: Path | str | None) -> Generated | Images | ImageFiles:
        """Return the user's data, or what stands in for them, before they are read."""
        if folder is not None:
            return self.layout.find(folder)
        return self.stand_in or _digits()


def _digits() -> Images:
    """Return scikit-learn's digits in MNIST's size."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError(
            "Without --data the mnist lab takes the digits that come with scikit-learn, which is "
            "not installed. Use --data with MNIST, or: pip install 'farandole[labs]'"
        ) from None
    digits = load_digits()
    # From 8x8 pixels of 0 to 16 to 28x28 of 0 to 255, linearly between the pixels' centres.
    side = digits.images.shape[1]
    places = (np.arange(MNIST_SIDE) + 0.5) * side / MNIST_SIDE - 0.5
    weights = np.stack([np.interp(places, np.arange(side), row) for row in np.eye(side)], axis=1)
    enlarged = weights @ digits.images @ weights.T * (255 / 16)
    x = np.asarray(enlarged.round(), dtype=np.uint8)[..., np.newaxis]
    y = digits.target.astype(np.int64)
    # The last fifth: images near each other seem to come from one hand. A nearest neighbour gets
    # 0.956 of these right, and 0.98 to 0.99 in a random split, which would leave less to learn.
    train = len(y) - _DIGITS_TEST
    source = "scikit-learn's digits, enlarged from 8x8 to 28x28"
    return Images(x[:train], y[:train], x[train:], y[train:], source, classes=DIGITS)


_PILOTNET = (66, 200)
_SETS = {
    "mnist": _DataSet(LAYOUTS["mnist"], None, (MNIST_SIDE, MNIST_SIDE)),
    "cifar10": _DataSet(LAYOUTS["cifar10"], generated.CIFAR10, (32, 32)),
    "driving": _DataSet(LAYOUTS["driving"], generated.ROAD, _PILOTNET),
    "fruits": _DataSet(LAYOUTS["fruits"], generated.FRUITS),
    "caltech": _DataSet(LAYOUTS["caltech"], generated.CALTECH),
    "faces": _DataSet(LAYOUTS["faces"], generated.FACES),
}
load_mnist, describe_mnist = _SETS["mnist"].load, _SETS["mnist"].describe
load_cifar10, describe_cifar10 = _SETS["cifar10"].load, _SETS["cifar10"].describe
load_driving, describe_driving = _SETS["driving"].load, _SETS["driving"].describe
load_fruits, describe_fruits = _SETS["fruits"].load, _SETS["fruits"].describe
load_caltech, describe_caltech = _SETS["caltech"].load, _SETS["caltech"].describe
load_faces, describe_faces = _SETS["faces"].load, _SETS["faces"].describe


def draw_samples(lab: str, folder: Path | None) -> bytes:
    """Draw the first training samples of a lab's data, as PNG; nothing of too few, or unknown."""
    data_set = _SETS.get(lab)
    if data_set is None:
        return b""
    try:
        shape = data_set.shape or (_DRAWN, _DRAWN)
        return contact_sheet(data_set.found(folder).read(shape, _NUM_DRAWN, 1).x_train)
    except UsageError:
        return b""

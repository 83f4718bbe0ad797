"""The labs' data: what a user brings, or generated images in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from farandole.errors import MissingExtraError, UsageError
from farandole.labs.data import files, generated
from farandole.labs.data.files import AGE_GROUPS
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

    what: str
    """For errors: "the drive"."""
    find: Callable[[Path], Images | ImageFiles]
    """Read a folder, or find the image files in it."""
    stand_in: Generated | Callable[[], Images]
    """Used where no folder is given."""
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
        return self._found(folder).read(self.shape or (size, size), samples, test_samples)

    def describe(self, folder: Path | str | None = None, *, size: int = _SIZE) -> DataFacts:
        """Look at the whole data set, as `load` reads it, and describe it."""
        # Imported late: every worker loads data, and needs nothing else of a lab.
        from farandole.labs.lab import DataFacts

        found, look = self._found(folder), None
        if isinstance(found, Generated):
            train, test = found.train, found.test
            num = max(1, len(found.classes))  # which take turns, so that there are as many of each
            counts = dict.fromkeys(found.classes, (train // num, test // num))
        else:
            look = found.read(_LOOK)
            train, test = len(look.y_train), len(look.y_test)
            counts = {
                name: (int((look.y_train == label).sum()), int((look.y_test == label).sum()))
                for label, name in enumerate(look.classes)
            }
        height, width = self.shape or (size, size)
        colour = "grey" if look and look.x_train.shape[-1] == 1 else "RGB"
        return DataFacts(
            source=found.source,
            train=train,
            test=test,
            sample=f"{height}x{width} {colour}",
            skipped=look.skipped if look else (),
            class_counts=counts,
            sides=look.sides if look else (),
        )

    def draw_samples(self, folder: Path | None) -> bytes:
        """Draw the first training samples in a few rows, as PNG; nothing of too few."""
        try:
            shape = self.shape or (_DRAWN, _DRAWN)
            return contact_sheet(self._found(folder).read(shape, _NUM_DRAWN, 1).x_train)
        except UsageError:
            return b""

    def _found(self, folder: Path | str | None) -> Generated | Images | ImageFiles:
        if folder is not None:
            return self.find(files.existing_folder(folder, self.what))
        return self.stand_in if isinstance(self.stand_in, Generated) else self.stand_in()


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
    places = (np.arange(files.MNIST_SIDE) + 0.5) * side / files.MNIST_SIDE - 0.5
    weights = np.stack([np.interp(places, np.arange(side), row) for row in np.eye(side)], axis=1)
    enlarged = weights @ digits.images @ weights.T * (255 / 16)
    x = np.asarray(enlarged.round(), dtype=np.uint8)[..., np.newaxis]
    y = digits.target.astype(np.int64)
    # The last fifth: images near each other seem to come from one hand. A nearest neighbour gets
    # 0.956 of these right, and 0.98 to 0.99 in a random split, which would leave less to learn.
    train = len(y) - _DIGITS_TEST
    source = "scikit-learn's digits, enlarged from 8x8 to 28x28"
    return Images(x[:train], y[:train], x[train:], y[train:], source, classes=files.DIGITS)


_find_fruits = partial(
    files.find_class_folders,
    # Kaggle's archive has the folders twice, one of them in a folder more.
    below=("dataset", "dataset/dataset"),
    what="a folder with fruit",
    expected="train/<class>/ and test/<class>/ with images, in the folder or in dataset/; "
    "Kaggle's classes are freshapples, freshbanana, freshoranges, rottenapples, rottenbanana "
    "and rottenoranges",
    source="fruit from the given folder",
)
_find_caltech = partial(
    files.find_class_folders,
    below=("256_ObjectCategories", "101_ObjectCategories"),
    what="a folder with categories",
    expected="256_ObjectCategories/ as Caltech has it (001.ak47/, 002.american-flag/, ...), or "
    "another folder with a folder for each category, of which a fifth is for testing; or "
    "train/<category>/ and test/<category>/",
    source="photos by category from the given folder",
)

_SIDE = files.MNIST_SIDE
_SETS = {
    "mnist": _DataSet("MNIST", files.read_mnist, _digits, (_SIDE, _SIDE)),
    "cifar10": _DataSet("CIFAR-10", files.read_cifar10, generated.CIFAR10, (32, 32)),
    # What PilotNet takes.
    "driving": _DataSet("the drive", files.find_drive, generated.ROAD, (66, 200)),
    "fruits": _DataSet("the fruit", _find_fruits, generated.FRUITS),
    "caltech": _DataSet("the categories", _find_caltech, generated.CALTECH),
    "faces": _DataSet("the faces", files.find_faces, generated.FACES),
}
load_mnist, describe_mnist = _SETS["mnist"].load, _SETS["mnist"].describe
load_cifar10, describe_cifar10 = _SETS["cifar10"].load, _SETS["cifar10"].describe
load_driving, describe_driving = _SETS["driving"].load, _SETS["driving"].describe
load_fruits, describe_fruits = _SETS["fruits"].load, _SETS["fruits"].describe
load_caltech, describe_caltech = _SETS["caltech"].load, _SETS["caltech"].describe
load_faces, describe_faces = _SETS["faces"].load, _SETS["faces"].describe


def draw_samples(lab: str, folder: Path | None) -> bytes:
    """Draw some training samples of a lab's data, as PNG; nothing for an unknown lab."""
    return _SETS[lab].draw_samples(folder) if lab in _SETS else b""

"""Fresh and rotten fruit, from Kaggle's folders or others like them; drawn fruit in its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole.labs.data.class_folders import find_class_folders
from farandole.labs.data.drawn_fruit import FRUIT
from farandole.labs.data.labelled import Labelled
from farandole.labs.data.photos import SIZE, Photos
from farandole.labs.data.samples import Images

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

# Kaggle's archive has the folders twice, one of them in a folder more.
_BELOW = ("dataset", "dataset/dataset")
_EXPECTED = (
    "train/<class>/ and test/<class>/ with images, in the folder or in dataset/; Kaggle's classes "
    "are freshapples, freshbanana, freshoranges, rottenapples, rottenbanana and rottenoranges"
)


def load_fruits(
    folder: Path | str | None = None, *, samples: int = 0, test_samples: int = 0, size: int = SIZE
) -> Images:
    """Load fresh and rotten fruit, or drawn ones.

    Args:
        folder: holds train/<class>/ and test/<class>/; None for drawn fruit.
        samples: train on so many, the same in every run; 0 for all.
        test_samples: test on so many; 0 for all.
        size: pixels of a side, to which images are scaled.

    Raises:
        DataError: the folder holds something else, or most images cannot be read.
        UsageError: there are not so many samples, or images would be too small.
    """
    return _PHOTOS.load(folder, samples=samples, test_samples=test_samples, size=size)


def describe_fruits(folder: Path | str | None = None, *, size: int = SIZE) -> DataFacts:
    """Look at the data as a whole, as `load_fruits` does, and say what they are."""
    return _PHOTOS.describe(folder, size=size)


def _find(folder: Path) -> Labelled:
    return find_class_folders(
        folder,
        _BELOW,
        what="a folder with fruit",
        expected=_EXPECTED,
        source="fruit from the given folder",
    )


_PHOTOS = Photos(what="the fruit", find=_find, drawn=FRUIT)

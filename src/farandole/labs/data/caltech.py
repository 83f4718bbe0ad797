"""Caltech-256, or other photos with a folder for each category; textures in their place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole.labs.data.class_folders import find_class_folders
from farandole.labs.data.labelled import Labelled
from farandole.labs.data.photos import SIZE, Photos
from farandole.labs.data.samples import Images
from farandole.labs.data.textures import TEXTURES

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

_BELOW = ("256_ObjectCategories", "101_ObjectCategories")
_EXPECTED = (
    "256_ObjectCategories/ as Caltech has it (001.ak47/, 002.american-flag/, ...), or another "
    "folder with a folder for each category, of which a fifth is for testing; or train/<category>/ "
    "and test/<category>/"
)


def load_caltech(
    folder: Path | str | None = None, *, samples: int = 0, test_samples: int = 0, size: int = SIZE
) -> Images:
    """Load photos by category, or textures.

    Args:
        folder: holds a folder for each category; None for textures.
        samples: train on so many, the same in every run; 0 for all.
        test_samples: test on so many; 0 for all.
        size: pixels of a side, to which images are scaled.

    Raises:
        DataError: the folder holds something else, or most images cannot be read.
        UsageError: there are not so many samples, or images would be too small.
    """
    return _PHOTOS.load(folder, samples=samples, test_samples=test_samples, size=size)


def describe_caltech(folder: Path | str | None = None, *, size: int = SIZE) -> DataFacts:
    """Look at the data as a whole, as `load_caltech` does, and say what they are."""
    return _PHOTOS.describe(folder, size=size)


def _find(folder: Path) -> Labelled:
    return find_class_folders(
        folder,
        _BELOW,
        what="a folder with categories",
        expected=_EXPECTED,
        source="photos by category from the given folder",
    )


_PHOTOS = Photos(what="the categories", find=_find, drawn=TEXTURES)

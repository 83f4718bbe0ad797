"""Faces and ages, from labels.csv or IMDB-WIKI; drawn faces in their place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole.labs.data.ages import LISTS, read_age_labels, read_list
from farandole.labs.data.drawn_faces import FACES
from farandole.labs.data.folder import first_folder, wrong_shape
from farandole.labs.data.labelled import Labelled
from farandole.labs.data.photos import SIZE, Photos
from farandole.labs.data.samples import Images
from farandole.labs.data.table import LABELS

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

_BELOW = ("wiki_crop", "imdb_crop")
_EXPECTED = (
    f"{LABELS} with the columns file and age_class (0 to 8), and the files that it names; or "
    f"IMDB-WIKI's wiki_crop/ with {LISTS[0]}, or imdb_crop/ with {LISTS[1]}"
)


def load_faces(
    folder: Path | str | None = None, *, samples: int = 0, test_samples: int = 0, size: int = SIZE
) -> Images:
    """Load faces with their age groups, or drawn ones.

    Args:
        folder: holds labels.csv and images, or IMDB-WIKI's faces; None for drawn faces.
        samples: train on so many, the same in every run; 0 for all.
        test_samples: test on so many; 0 for all.
        size: pixels of a side, to which images are scaled.

    Raises:
        DataError: the folder holds something else, or most images cannot be read.
        UsageError: there are not so many samples, or images would be too small.
    """
    return _PHOTOS.load(folder, samples=samples, test_samples=test_samples, size=size)


def describe_faces(folder: Path | str | None = None, *, size: int = SIZE) -> DataFacts:
    """Look at the data as a whole, as `load_faces` does, and say what they are."""
    return _PHOTOS.describe(folder, size=size)


def _find(folder: Path) -> Labelled:
    found = first_folder(folder, _BELOW, (LABELS, *LISTS))
    if found is None:
        raise wrong_shape(folder, "a folder with faces", _EXPECTED)
    if (found / LABELS).is_file():
        return read_age_labels(found / LABELS)
    return read_list(next(found / name for name in LISTS if (found / name).is_file()))


_PHOTOS = Photos(what="the faces", find=_find, drawn=FACES)

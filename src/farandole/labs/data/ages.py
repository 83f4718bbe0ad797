"""People's ages in nine groups: from labels.csv, or from the lists of IMDB-WIKI."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError
from farandole.labs.data.labelled import Labelled
from farandole.labs.data.samples import checked_labels
from farandole.labs.data.table import check_both, in_test, read_labels

GROUPS = ("0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70 and more")
LISTS = ("wiki.mat", "imdb.mat")
"""What IMDB-WIKI's archives wiki_crop and imdb_crop say their faces are."""

_BOUNDS = (3, 10, 20, 30, 40, 50, 60, 70)
_MOST = 100
# MATLAB counts days from the year 0, Python from the year 1.
_MATLAB_DAYS = 366


def read_age_labels(path: Path) -> Labelled:
    """Read labels.csv: file, age_class (0 to 8), and split where there is one.

    Raises:
        DataError: a column is missing, or a value is not what its column needs.
    """
    files, numbers, is_test = [], [], []
    for row in read_labels(path, ("file", "age_class")):
        text = row.values["age_class"]
        try:
            numbers.append(int(text))
        except ValueError:
            raise DataError(
                f"{row.where}: the age_class {text!r} is not a whole number of 0 to "
                f"{len(GROUPS) - 1}."
            ) from None
        files.append(path.parent / row.values["file"])
        is_test.append(row.is_test(files[-1].name))
    check_both(path, is_test)
    labels = checked_labels(np.array(numbers, np.int64), len(GROUPS), str(path))
    return _labelled(files, labels, is_test, "faces from the given folder")


def read_list(path: Path) -> Labelled:
    """Read IMDB-WIKI's list: the age is that on 1 July of the year of the photo, as its makers say.

    Raises:
        DataError: it is not such a list, or hardly any face has a usable age.
    """
    born, taken, names, scores = _columns(path)
    ages = np.array([_age(*pair) for pair in zip(born.tolist(), taken.tolist(), strict=True)])
    aged = (ages >= 0) & (ages <= _MOST)
    # Where no face was found, the image is all of the photo.
    usable = aged & np.isfinite(scores)
    if 2 * usable.sum() < len(ages):
        raise DataError(
            f"{path}: {len(ages) - usable.sum():,} of {len(ages):,} entries have no usable age (0 "
            f"to {_MOST}) or no face. Is it IMDB-WIKI's list?"
        )
    skipped = [
        _unusable(path, names, ~aged, f"have no usable age (0 to {_MOST})"),
        _unusable(path, names, aged & ~usable, "have no face that was found"),
    ]
    chosen = [names[index] for index in np.flatnonzero(usable)]
    is_test = [in_test(name) for name in chosen]
    check_both(path, is_test)
    labels = np.digitize(ages[usable], _BOUNDS).astype(np.int64)
    return _labelled(
        [path.parent / name for name in chosen],
        labels,
        is_test,
        f"IMDB-WIKI's {path.stem}_crop from the given folder",
        skipped=tuple(filter(None, skipped)),
    )


def _labelled(
    files: list[Path],
    labels: NDArray[np.int64],
    is_test: list[bool],
    source: str,
    *,
    skipped: tuple[str, ...] = (),
) -> Labelled:
    return Labelled(
        files=tuple(files),
        labels=labels,
        groups=labels,
        is_test=np.array(is_test, np.bool_),
        source=source,
        skipped=skipped,
        classes=GROUPS,
    )


def _columns(path: Path) -> tuple[NDArray[Any], NDArray[Any], list[str], NDArray[np.float64]]:
    """Return dates of birth, years of photos, paths, and how sure a face was found."""
    from scipy.io import loadmat

    needed = ("dob", "photo_taken", "full_path", "face_score")
    try:
        with path.open("rb") as file:
            table = loadmat(file, variable_names=[path.stem], squeeze_me=True)[path.stem]
        found = [np.atleast_1d(table[name].item()) for name in needed]
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path} cannot be read: {error.strerror}.") from None
        # Damaged bytes make the reader fail in any way: KeyError, ValueError, zlib.error.
        raise DataError(
            f"{path} is not IMDB-WIKI's list, a MATLAB file with {', '.join(needed)}, or is "
            f"damaged: {type(error).__name__}: {error}."
        ) from None
    if len({len(column) for column in found}) != 1:
        lengths = ", ".join(f"{name} {len(one)}" for name, one in zip(needed, found, strict=True))
        raise DataError(f"{path}: expected as many of each, found {lengths}. Get it again.")
    born, taken, names, scores = found
    return born, taken, [str(name) for name in names], scores.astype(np.float64)


def _age(born: float, taken: float) -> int:
    """Return the age in years, -1 where the date of birth is none."""
    try:
        birth = date.fromordinal(int(born) - _MATLAB_DAYS)
    except (ValueError, OverflowError):
        return -1
    return int(taken) - birth.year - ((birth.month, birth.day) > (7, 1))


def _unusable(path: Path, names: list[str], which: NDArray[np.bool_], why: str) -> str:
    places = np.flatnonzero(which)
    if not len(places):
        return ""
    return f"{path}: {len(places):,} of {len(names):,} entries {why}; first {names[places[0]]}"

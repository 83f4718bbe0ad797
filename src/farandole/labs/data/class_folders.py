"""Images in one folder for each class: train/<class>/ and test/<class>/, or <class>/ alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from farandole.errors import DataError
from farandole.labs.data.folder import listing, wrong_shape
from farandole.labs.data.labelled import Labelled
from farandole.labs.data.table import TEST_EVERY, name_hash

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
"""What a file's name ends with when it is taken for an image, in small letters."""

_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "valid", "validation")
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The images to train on, or those to test on, by class."""

    folder: Path
    images: dict[str, list[Path]]


def find_class_folders(
    folder: Path, below: Sequence[str], *, what: str, expected: str, source: str
) -> Labelled:
    """Find the images of a folder with a folder for each class.

    Without train/ and test/, a fifth of each class is for testing, chosen by the files' names: the
    same on every machine.

    Args:
        folder: where the user says that they are.
        below: subfolders to look into, too.
        what: for errors: "a folder with fruit".
        expected: for errors: what should be there.
        source: in words, for reports: "fruit from the given folder".

    Raises:
        DataError: they are not there, a class has no image, or there are not two classes.
    """
    for part in ("", *below):
        train, test = (_subfolder(folder / part, names) for names in (_TRAIN, _TEST))
        if train is not None and test is not None:
            return _divided(_side(train), _side(test), source)
        if train is not None or test is not None:
            there, missing = ("train/", "test/") if test is None else ("test/", "train/")
            raise wrong_shape(
                folder / part, f"{what}: {there} is there, and {missing} is missing", expected
            )
    for part in ("", *below):
        if sum(1 for one in _subfolders(folder / part) if _images(one)) >= 2:
            return _divide(_side(folder / part), source)
    raise wrong_shape(folder, what, expected)


def _subfolder(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if one.is_dir() and one.name[0] != ".")


def _images(folder: Path) -> list[Path]:
    """Return the images of a folder; Caltech-256 has other files and folders among them."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in ENDINGS and file.name[0] != "." and file.is_file()
    )


def _side(folder: Path) -> _Side:
    images = {one.name: _images(one) for one in _subfolders(folder)}
    for name, found in images.items():
        if not found:
            raise DataError(
                f"{folder / name} is taken for a class, and holds no image ({', '.join(ENDINGS)}). "
                f"Found: {listing(folder / name)}. Take the folder away, or fill it."
            )
    if len(images) < 2:
        raise DataError(
            f"{folder}: expected a folder for each of at least two classes, found: "
            f"{listing(folder)}."
        )
    return _Side(folder=folder, images=images)


def _divided(train: _Side, test: _Side, source: str) -> Labelled:
    """Take the division that the folders have."""
    unknown = [name for name in test.images if name not in train.images]
    if unknown:
        raise DataError(
            f"{test.folder} has the class {unknown[0]}, of which {train.folder} has no image to "
            f"learn it from. Classes to train on: {_named(list(train.images))}."
        )
    untested = [name for name in train.images if name not in test.images]
    note = f"; not tested, because {test.folder.name}/ has no image of it: {_named(untested)}"
    return _labelled(train.images, test.images, source + (note if untested else ""))


def _divide(whole: _Side, source: str) -> Labelled:
    """Put a fifth of each class aside for testing; one image cannot be on both sides."""
    train, test = {}, {}
    for name, files in whole.images.items():
        mixed = sorted(files, key=lambda file: (name_hash(f"{name}/{file.name}"), file.name))
        count = max(1, round(len(mixed) / TEST_EVERY)) if len(mixed) > 1 else 0
        test[name], train[name] = mixed[:count], mixed[count:]
    single = [name for name, files in test.items() if not files]
    note = f"; not tested, because there is one image of it: {_named(single)}"
    return _labelled(train, test, source + (note if single else ""))


def _labelled(train: dict[str, list[Path]], test: dict[str, list[Path]], source: str) -> Labelled:
    classes = tuple(train)
    files, labels, is_test = [], [], []
    for side, testing in ((train, False), (test, True)):
        for label, name in enumerate(classes):
            found = side.get(name, [])
            files += found
            labels += [label] * len(found)
            is_test += [testing] * len(found)
    numbers = np.array(labels, np.int64)
    return Labelled(
        files=tuple(files),
        labels=numbers,
        groups=numbers,
        is_test=np.array(is_test, np.bool_),
        source=source,
        classes=classes,
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

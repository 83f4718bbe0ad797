"""Read the data sets that users bring: MNIST, CIFAR-10, drives, class folders and faces."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import math
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO

import numpy as np
from numpy._core import multiarray, numeric
from numpy.typing import NDArray

from farandole.errors import DataError
from farandole.labs.data.images import ImageFiles, Images, Pair

AGE_GROUPS = ("0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70 and more")

_LISTED, _NAMED = 6, 3


def existing_folder(folder: Path | str, what: str) -> Path:
    """Return the user's folder, or raise DataError where there is none."""
    path = Path(folder).expanduser()
    if path.is_dir():
        return path
    found = "it is a file" if path.exists() else "there is nothing"
    raise DataError(
        f"You gave {path} as the folder of {what} (--data {path}), but {found}. "
        "Give the folder that holds the data, or leave --data away for data that are made here."
    )


@contextlib.contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Say which file is damaged: its bytes make readers fail in any way, zlib.error to KeyError."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path} cannot be read: {error.strerror}.") from None
        raise DataError(
            f"{path} is not {what}, or is damaged: {type(error).__name__}: {error}. Get it again."
        ) from None


def _first_folder(folder: Path, below: Sequence[str], names: Sequence[str]) -> Path | None:
    """Find the first of the folder and its subfolders `below` that holds one of the files."""
    folders = [folder / part for part in ("", *below)]
    return next((one for one in folders if any((one / name).is_file() for name in names)), None)


def _wrong(folder: Path, what: str, expected: str) -> DataError:
    return DataError(f"{folder} is not {what}. Expected: {expected}. Found: {_listing(folder)}.")


def _listing(folder: Path) -> str:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        return f"a folder that cannot be read ({error.strerror})"
    names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
    return _named(names, _LISTED) if names else "an empty folder"


def _named(names: Sequence[str], most: int = _NAMED) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _checked_labels(labels: NDArray[Any], num_classes: int, where: object) -> NDArray[np.int64]:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"{where}: expected one whole number per image as its label, found an array of "
            f"{labels.dtype} with shape {labels.shape}."
        )
    bad = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(bad):
        raise DataError(
            f"{where}: label {labels[bad[0]]} of image {bad[0]} is out of range: the labels of "
            f"{num_classes} classes are 0 to {num_classes - 1}. {len(bad):,} of {len(labels):,} "
            "labels are out of range."
        )
    return labels.astype(np.int64)


def _checked_pair(
    x: NDArray[Any], y: NDArray[Any], shape: tuple[int, ...], x_path: Path, y_path: Path
) -> Pair:
    """Return images of ten classes with their labels, or say what is wrong with them."""
    if x.dtype != np.uint8 or x.shape[1:] != shape:
        raise DataError(
            f"{x_path}: expected images as uint8 of shape (N, {', '.join(map(str, shape))}), found "
            f"{x.dtype} of shape {x.shape}."
        )
    labels = _checked_labels(y, len(DIGITS), y_path)
    if len(x) != len(labels):
        raise DataError(
            f"{x_path} holds {len(x):,} images, but {y_path} holds {len(labels):,} labels: every "
            "image needs one. One of the two is incomplete, or from another data set."
        )
    if not len(x):
        raise DataError(f"{x_path} holds no image.")
    return x, labels


# MNIST: four idx files.

DIGITS = tuple("0123456789")
MNIST_SIDE = 28
_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
_MNIST_EXPECTED = (
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, each as it is or with .gz, in the folder, in raw/ or in MNIST/raw/"
)


def read_mnist(folder: Path) -> Images:
    """Read MNIST's idx files, as they are or compressed by gzip."""
    # Some copies have a dot where the original has a dash.
    names = [
        [f"{part[:-5]}{mark}{part[-4:]}-ubyte{end}" for mark in "-." for end in ("", ".gz")]
        for part in _PARTS
    ]
    # torchvision leaves the files in MNIST/raw below the folder that it was given.
    found = _first_folder(folder, ("raw", "MNIST/raw"), [one for part in names for one in part])
    if found is None:
        raise _wrong(folder, "a folder with MNIST", _MNIST_EXPECTED)
    paths = []
    for part, spellings in zip(_PARTS, names, strict=True):
        there = [found / name for name in spellings if (found / name).is_file()]
        if not there:
            raise _wrong(found, f"all of MNIST: {part}-ubyte is missing", _MNIST_EXPECTED)
        paths.append(there[0])
    train, test = _read_idx_pair(*paths[:2]), _read_idx_pair(*paths[2:])
    return Images(*train, *test, "MNIST from the given folder", classes=DIGITS)


def _read_idx_pair(x_path: Path, y_path: Path) -> Pair:
    x, y = _read_idx(x_path, dimensions=3), _read_idx(y_path, dimensions=1)
    images, labels = _checked_pair(x, y, (MNIST_SIDE, MNIST_SIDE), x_path, y_path)
    return images[..., np.newaxis], labels


def _read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    with _reading(path, "a gzip file"):
        content = path.read_bytes()
        # By its first bytes: browsers decompress a file and leave its name.
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    start, magic = 4 + 4 * dimensions, bytes((0, 0, 8, dimensions))
    if len(content) < start:
        raise DataError(
            f"{path}: an idx file of {dimensions} dimensions begins with {start} bytes, this one "
            f"ends after {len(content)}. Get it again."
        )
    if content[:4] != magic:
        raise DataError(
            f"{path}: expected an idx file of bytes with {dimensions} dimensions (it begins with "
            f"{magic.hex(' ')}), found {content[:4].hex(' ')}."
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    expected, found = math.prod(shape), len(content) - start
    if expected != found:
        raise DataError(
            f"{path} is {'cut short' if found < expected else 'too long'}: it announces "
            f"{' x '.join(map(str, shape))} = {expected:,} bytes of data and holds {found:,}. Get "
            "it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


# CIFAR-10: npz files, or the original python batches.

_CIFAR_SHAPE = (32, 32, 3)
_CIFAR_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR_EXPECTED = (
    "data_batch_1 to data_batch_5 and test_batch, CIFAR-10's python batches, in the folder or in "
    "cifar-10-batches-py/; or data_batch_*.npz or train*.npz, and test*.npz, with the arrays x "
    "(N, 32, 32, 3) and y (N)"
)


def read_cifar10(folder: Path) -> Images:
    """Read CIFAR-10."""
    train = sorted(folder.glob("data_batch_*.npz")) or sorted(folder.glob("train*.npz"))
    test = sorted(folder.glob("test*.npz"))
    names: Any = None
    if train and test:
        read = _read_npz
        with contextlib.suppress(OSError, ValueError):
            names = json.loads((folder / "classes.json").read_text())
    else:
        read = _read_python
        found = _first_folder(folder, ("cifar-10-batches-py",), (*_BATCHES, "test_batch"))
        if found is None:
            raise _wrong(folder, "a folder with CIFAR-10", _CIFAR_EXPECTED)
        train = [found / name for name in _BATCHES if (found / name).is_file()]
        test = [found / "test_batch"]
        if not train or not test[0].is_file():
            missing = "test_batch" if train else "data_batch_1 to data_batch_5"
            raise _wrong(found, f"all of CIFAR-10: {missing} is missing", _CIFAR_EXPECTED)
        meta = found / "batches.meta"
        names = _read_batch(meta).get(b"label_names") if meta.is_file() else None
    classes: tuple[str, ...] = _CIFAR_CLASSES
    if isinstance(names, list) and len(names) == len(classes):
        classes = tuple(
            name.decode(errors="replace") if isinstance(name, bytes) else str(name)
            for name in names
        )

    def joined(paths: Sequence[Path]) -> Pair:
        x, y = zip(*map(read, paths), strict=True)
        return np.concatenate(x), np.concatenate(y)

    return Images(*joined(train), *joined(test), "CIFAR-10 from the given folder", classes=classes)


def _read_npz(path: Path) -> Pair:
    # No pickle: a folder of data must not run code.
    with (
        _reading(path, "an npz file"),
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        if "x" not in arrays or "y" not in arrays:
            raise DataError(
                f"{path}: expected the arrays x and y, found {', '.join(arrays) or 'none'}."
            )
        x, y = arrays["x"], arrays["y"]
    return _checked_pair(x, y, _CIFAR_SHAPE, path, path)


def _read_python(path: Path) -> Pair:
    batch = _read_batch(path)
    if b"data" not in batch or b"labels" not in batch:
        keys = ", ".join(key.decode(errors="replace") for key in batch) or "nothing"
        raise DataError(f"{path}: expected a dictionary with data and labels, found {keys}.")
    flat = np.asarray(batch[b"data"])
    if flat.ndim != 2 or flat.shape[1] != math.prod(_CIFAR_SHAPE):
        raise DataError(
            f"{path}: expected rows of {math.prod(_CIFAR_SHAPE)} bytes, found an array of shape "
            f"{flat.shape}."
        )
    # A row holds the red plane, then green, then blue.
    x = flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _checked_pair(x, np.asarray(batch[b"labels"]), _CIFAR_SHAPE, path, path)


def _read_batch(path: Path) -> dict[bytes, Any]:
    """Read one python batch as a dictionary with keys in bytes, and run nothing of it."""
    with _reading(path, "a python batch of CIFAR-10"), path.open("rb") as file:
        found = _PlainUnpickler(file).load()
    if not isinstance(found, dict):
        raise DataError(
            f"{path}: expected a dictionary with data and labels, found a {type(found).__name__}."
        )
    # Python 3 writes the same batches with keys in text.
    return {key.encode() if isinstance(key, str) else key: value for key, value in found.items()}


class _PlainUnpickler(pickle.Unpickler):
    """A pickle can name any function and call it; here, only those that build NumPy arrays."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="bytes")
        self._path = file.name

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module.replace("numpy.core.", "numpy._core."), name]
        except KeyError:
            raise DataError(
                f"{self._path} asks for {module}.{name} while it is read. A batch of CIFAR-10 "
                "needs NumPy arrays and plain values only, so this file is something else, or was "
                "tampered with. Nothing of it was run."
            ) from None


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """Encode as old protocols do for bytes; other encodings have no place in a batch."""
    if encoding != "latin1":
        raise ValueError(f"the encoding {encoding!r}")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], Callable[..., Any] | type] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy._core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy._core.multiarray", "scalar"): multiarray.scalar,
    ("numpy._core.numeric", "_frombuffer"): numeric._frombuffer,  # type: ignore[attr-defined]
    ("_codecs", "encode"): _latin1,
}


# Class folders: train/<class>/ and test/<class>/, or <class>/ alone.

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "valid", "validation")
# One image of five is for testing, where nothing says which.
_TEST_EVERY = 5


def find_class_folders(
    folder: Path, below: Sequence[str], *, what: str, expected: str, source: str
) -> ImageFiles:
    """Find images with a folder for each class, in the folder or in one of those `below`.

    Without train/ and test/, a fifth of each class is for testing, chosen by the files' names: the
    same on every machine.

    Raises:
        DataError: they are not there, a class has no image, or there are not two classes.
    """
    folders = [folder / part for part in ("", *below)]
    for one in folders:
        train, test = (
            next((one / name for name in names if (one / name).is_dir()), None)
            for names in (_TRAIN, _TEST)
        )
        if train is not None and test is not None:
            return _divided(train, test, source)
        if train is not None or test is not None:
            there, missing = ("train/", "test/") if test is None else ("test/", "train/")
            raise _wrong(one, f"{what}: {there} is there, and {missing} is missing", expected)
    for one in folders:
        if sum(1 for subfolder in _subfolders(one) if _images(subfolder)) >= 2:
            return _divide(one, source)
    raise _wrong(folder, what, expected)


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


def _by_class(folder: Path) -> dict[str, list[Path]]:
    images = {one.name: _images(one) for one in _subfolders(folder)}
    for name, found in images.items():
        if not found:
            raise DataError(
                f"{folder / name} is taken for a class, and holds no image ({', '.join(ENDINGS)}). "
                f"Found: {_listing(folder / name)}. Take the folder away, or fill it."
            )
    if len(images) < 2:
        raise DataError(
            f"{folder}: expected a folder for each of at least two classes, found: "
            f"{_listing(folder)}."
        )
    return images


def _divided(train_folder: Path, test_folder: Path, source: str) -> ImageFiles:
    """Take the split that the folders have."""
    train, test = _by_class(train_folder), _by_class(test_folder)
    unknown = [name for name in test if name not in train]
    if unknown:
        raise DataError(
            f"{test_folder} has the class {unknown[0]}, of which {train_folder} has no image to "
            f"learn it from. Classes to train on: {_named(list(train))}."
        )
    why = f"{test_folder.name}/ has no image of it"
    return _class_files(train, test, test_folder.parent, source, why)


def _divide(folder: Path, source: str) -> ImageFiles:
    """Put a fifth of each class aside for testing; one image cannot be on both sides."""
    train, test = {}, {}
    for name, files in _by_class(folder).items():
        mixed = sorted(files, key=lambda file: (_hash(f"{name}/{file.name}"), file.name))
        count = max(1, round(len(mixed) / _TEST_EVERY)) if len(mixed) > 1 else 0
        test[name], train[name] = mixed[:count], mixed[count:]
    return _class_files(train, test, folder, source, "there is one image of it")


def _class_files(
    train: dict[str, list[Path]],
    test: dict[str, list[Path]],
    folder: Path,
    source: str,
    why_untested: str,
) -> ImageFiles:
    found = [
        (file, label, side is test)
        for side in (train, test)
        for label, name in enumerate(train)
        for file in side.get(name, [])
    ]
    untested = [name for name in train if not test.get(name)]
    note = f"; not tested, because {why_untested}: {_named(untested)}" if untested else ""
    return _image_files(folder, found, source=source + note, classes=tuple(train))


def _image_files(
    where: Path, found: Sequence[tuple[Path, float, bool]], **other: Any
) -> ImageFiles:
    """Return files with label and side; refuse data that leave one side without an image."""
    files, labels, is_test = zip(*found, strict=True)
    if not any(is_test) or all(is_test):
        raise DataError(
            f"{where} has {len(files) - sum(is_test)} images for training and {sum(is_test)} for "
            "testing: both are needed."
        )
    numbers = np.array(labels, np.int64 if other.get("classes") else np.float32)
    return ImageFiles(
        **{"groups": numbers, **other},
        files=files,
        labels=numbers,
        is_test=np.array(is_test, np.bool_),
    )


# labels.csv: what is on which image, and which images are for testing.

LABELS = "labels.csv"
_SPLITS = {"train": False, "test": True, "val": True, "valid": True, "validation": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    where: str
    """For errors: "labels.csv, line 7"."""
    values: Mapping[str, str]
    """By column."""

    def is_test(self, name: str) -> bool:
        """Decide by the column split, or else by the image's name."""
        split = self.values.get("split")
        if split is None:
            return in_test(name)
        if split.lower() not in _SPLITS:
            raise DataError(
                f"{self.where}: unknown split {split!r}. Choose from {', '.join(_SPLITS)}."
            )
        return _SPLITS[split.lower()]


def in_test(name: str) -> bool:
    """Decide by its name alone whether an image is for testing: the same on every machine."""
    return _hash(name) % _TEST_EVERY == 0


def _hash(name: str) -> int:
    return zlib.crc32(name.encode(errors="surrogateescape"))


def _read_rows(path: Path, needed: Sequence[str], headless: Sequence[str] = ()) -> Iterator[_Row]:
    """Read a table; one without a header has the columns `headless`, with numbers in `needed[-1]`.

    Raises:
        DataError: It is not CSV, lacks a column, or a line is too short.
    """
    # utf-8-sig: spreadsheets put a mark before the first column's name.
    with _reading(path, "a table in CSV"), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        lines = [
            (reader.line_num, [*map(str.strip, row)]) for row in reader if any(map(str.strip, row))
        ]
    if not lines:
        raise DataError(f"{path} is empty.")
    header: Sequence[str] = lines[0][1]
    missing = [name for name in needed if name not in header]
    if not missing:
        del lines[0]
    elif _number(dict(zip(headless, header, strict=False)).get(needed[-1], "")) is not None:
        header = headless[: len(header)]
    else:
        columns = f"{', '.join(headless)}, with or without a header" if headless else ""
        raise DataError(
            f"{path}: expected the columns {columns or ' and '.join(needed)}; found "
            f"{', '.join(header)}. {' and '.join(missing)} is missing."
        )
    for number, line in lines:
        where = f"{path}, line {number}"
        if len(line) < len(header):
            raise DataError(f"{where}: expected {len(header)} columns, found {len(line)}.")
        yield _Row(where=where, values=dict(zip(header, line, strict=False)))


# A drive: labels.csv, or the log of Udacity's simulator.

_LOG = "driving_log.csv"
_LOG_COLUMNS = ("center", "left", "right", "steering", "throttle", "brake", "speed")
# The part of the simulator's 160 rows between the trees and the bonnet.
_LOG_ROWS = (60 / 160, 135 / 160)
# The steering is balanced in so many steps from straight ahead to fully aside.
_STEPS = 4
_DRIVE_EXPECTED = (
    f"{LABELS} with the columns file and steering, and the files that it names; or the "
    f"simulator's {_LOG} and IMG/, in the folder or in data/"
)


def find_drive(folder: Path) -> ImageFiles:
    """Find the images of a drive and the steering at each."""
    # Udacity's archive has a folder data in it.
    found = _first_folder(folder, ("data",), (LABELS, _LOG))
    if found is None:
        raise _wrong(folder, "a folder with a drive", _DRIVE_EXPECTED)
    images: list[tuple[_Row, Path]]
    if (path := found / LABELS).is_file():
        rows = (0.0, 1.0)
        images = [
            (row, found / row.values["file"]) for row in _read_rows(path, ("file", "steering"))
        ]
    else:
        path, rows = found / _LOG, _LOG_ROWS
        # The log has the paths of the machine where the car was driven, often a Windows one.
        images = [
            (row, found / "IMG" / PureWindowsPath(row.values["center"]).name)
            for row in _read_rows(path, ("center", "steering"), _LOG_COLUMNS)
        ]
    files = [(file, _steering(row), row.is_test(file.name)) for row, file in images]
    groups = np.round(np.array([steering for _, steering, _ in files], np.float32) * _STEPS)
    source = "a drive from the given folder"
    return _image_files(path, files, groups=groups, source=source, rows=rows)


def _steering(row: _Row) -> float:
    text = row.values["steering"]
    value = _number(text)
    if value is None:
        raise DataError(f"{row.where}: the steering {text!r} is not a number.")
    if not -1 <= value <= 1:
        raise DataError(
            f"{row.where}: the steering {text} is out of range: -1 is fully left, 1 fully right."
        )
    return value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# Faces with ages: labels.csv, or the lists of IMDB-WIKI's archives wiki_crop and imdb_crop.

_LISTS = ("wiki.mat", "imdb.mat")
_LIST_COLUMNS = ("dob", "photo_taken", "full_path", "face_score")
_AGE_BOUNDS = (3, 10, 20, 30, 40, 50, 60, 70)
_OLDEST = 100
# MATLAB counts days from the year 0, Python from the year 1.
_MATLAB_DAYS = 366
_FACES_EXPECTED = (
    f"{LABELS} with the columns file and age_class (0 to 8), and the files that it names; or "
    f"IMDB-WIKI's wiki_crop/ with {_LISTS[0]}, or imdb_crop/ with {_LISTS[1]}"
)


def find_faces(folder: Path) -> ImageFiles:
    """Find images of faces and their age groups."""
    found = _first_folder(folder, ("wiki_crop", "imdb_crop"), (LABELS, *_LISTS))
    if found is None:
        raise _wrong(folder, "a folder with faces", _FACES_EXPECTED)
    if (found / LABELS).is_file():
        return _read_age_classes(found / LABELS)
    return _read_imdb_wiki(next(found / name for name in _LISTS if (found / name).is_file()))


def _read_age_classes(path: Path) -> ImageFiles:
    files = []
    for row in _read_rows(path, ("file", "age_class")):
        text, file = row.values["age_class"], path.parent / row.values["file"]
        if not text.isdecimal():
            raise DataError(
                f"{row.where}: the age_class {text!r} is not a whole number of 0 to "
                f"{len(AGE_GROUPS) - 1}."
            )
        files.append((file, int(text), row.is_test(file.name)))
    _checked_labels(np.array([label for _, label, _ in files], int), len(AGE_GROUPS), path)
    return _image_files(path, files, source="faces from the given folder", classes=AGE_GROUPS)


def _read_imdb_wiki(path: Path) -> ImageFiles:
    """Read IMDB-WIKI's list; its makers take the age on 1 July of the year of the photo."""
    born, taken, names, scores = _list_columns(path)
    ages = np.array([_age(*pair) for pair in zip(born.tolist(), taken.tolist(), strict=True)])
    aged = (ages >= 0) & (ages <= _OLDEST)
    # Where no face was found, the image is all of the photo.
    usable = aged & np.isfinite(scores.astype(np.float64))
    if 2 * usable.sum() < len(ages):
        raise DataError(
            f"{path}: {len(ages) - usable.sum():,} of {len(ages):,} entries have no usable age (0 "
            f"to {_OLDEST}) or no face. Is it IMDB-WIKI's list?"
        )
    reasons = {
        f"have no usable age (0 to {_OLDEST})": np.flatnonzero(~aged),
        "have no face that was found": np.flatnonzero(aged & ~usable),
    }
    skipped = tuple(
        f"{path}: {len(bad):,} of {len(names):,} entries {why}; first {names[bad[0]]}"
        for why, bad in reasons.items()
        if len(bad)
    )
    chosen = [str(name) for name in names[usable]]
    labels = np.digitize(ages[usable], _AGE_BOUNDS)
    files = [
        (path.parent / name, label, in_test(name))
        for name, label in zip(chosen, labels.tolist(), strict=True)
    ]
    source = f"IMDB-WIKI's {path.stem}_crop from the given folder"
    return _image_files(path, files, source=source, skipped=skipped, classes=AGE_GROUPS)


def _list_columns(path: Path) -> list[NDArray[Any]]:
    from scipy.io import loadmat

    what = f"IMDB-WIKI's list, a MATLAB file with {', '.join(_LIST_COLUMNS)}"
    with _reading(path, what), path.open("rb") as file:
        table = loadmat(file, variable_names=[path.stem], squeeze_me=True)[path.stem]
        found = [np.atleast_1d(table[name].item()) for name in _LIST_COLUMNS]
    if len({len(column) for column in found}) != 1:
        pairs = zip(_LIST_COLUMNS, found, strict=True)
        lengths = ", ".join(f"{name} {len(one)}" for name, one in pairs)
        raise DataError(f"{path}: expected as many of each, found {lengths}. Get it again.")
    return found


def _age(born: float, taken: float) -> int:
    """Return the age in years, -1 where the date of birth is none."""
    try:
        birth = date.fromordinal(int(born) - _MATLAB_DAYS)
    except (ValueError, OverflowError):
        return -1
    return int(taken) - birth.year - ((birth.month, birth.day) > (7, 1))

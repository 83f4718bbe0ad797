"""Read the data sets that users bring: MNIST, CIFAR-10, class folders, drives and faces.

A reader takes a folder and returns its images, or None where nothing of its layout is there. Where
something is wrong it raises DataError: what was expected, and what was found.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import math
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy._core import multiarray, numeric
from numpy.typing import NDArray

from farandole.errors import DataError
from farandole.labs.data.images import ImageFiles, Images, Pair

_LISTED = 6


@dataclass(frozen=True, slots=True)
class Layout:
    """How a data set lies in a folder."""

    what: str
    """For errors: "MNIST"."""
    expected: str
    read: Callable[[Path], Images | ImageFiles | None]
    below: tuple[str, ...] = ()
    """Folders in the given one that may hold the data in its place."""

    def find(self, folder: Path | str) -> Images | ImageFiles:
        """Read the data set in the user's folder, or find its image files."""
        path = Path(folder).expanduser()
        if not path.is_dir():
            found = "it is a file" if path.exists() else "there is nothing"
            raise DataError(
                f"--data {path} is to be a folder with {self.what}, but {found}. Give the folder "
                "that holds the data, or leave --data away for data that are made here."
            )
        for part in ("", *self.below):
            if (path / part).is_dir() and (found_here := self.read(path / part)) is not None:
                return found_here
        raise _wrong(path, f"a folder with {self.what}", self.expected)


def _wrong(folder: Path, what: str, expected: str) -> DataError:
    return DataError(f"{folder} is not {what}. Expected: {expected}. Found: {_listing(folder)}.")


def _listing(folder: Path) -> str:
    names = [f"{one.name}/" if one.is_dir() else one.name for one in sorted(folder.iterdir())]
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more if names else "an empty folder"


def _expect(good: bool, where: Path | str, expected: str, found: str) -> None:
    if not good:
        raise DataError(f"{where}: expected {expected}, found {found}.")


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


def _checked(
    x: NDArray[Any], y: NDArray[Any], shape: tuple[int, ...], path: Path, labels: Path
) -> Pair:
    """Return images of ten classes with their labels, or say what is wrong with them."""
    good = x.dtype == np.uint8 and x.shape[1:] == shape and len(x) > 0
    wanted = f"images as uint8 of shape (N, {', '.join(map(str, shape))})"
    _expect(good, path, wanted, f"{x.dtype} of shape {x.shape}")
    good = y.ndim == 1 and y.dtype.kind in "iu" and len(x) == len(y)
    wanted = f"a whole number for each of {len(x):,} images"
    _expect(good, labels, wanted, f"{y.dtype} of shape {y.shape}")
    _check_range(y, 10, labels)
    return x, y.astype(np.int64)


def _check_range(labels: NDArray[Any], num_classes: int, path: Path) -> None:
    bad = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(bad):
        raise DataError(
            f"{path}: label {labels[bad[0]]} of image {bad[0]} is out of range: the labels of "
            f"{num_classes} classes are 0 to {num_classes - 1}. {len(bad):,} of {len(labels):,} "
            "labels are out of range."
        )


# MNIST: four idx files, as they are or compressed by gzip.

MNIST_SIDE = 28
DIGITS = tuple("0123456789")
_MNIST_EXPECTED = (
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, each as it is or with .gz, in the folder, in raw/ or in MNIST/raw/"
)


def _read_mnist(folder: Path) -> Images | None:
    # Some copies have a dot where the original has a dash.
    names = [f"{side}-{kind}-ubyte" for side in ("train", "t10k") for kind in _IDX]
    found = [path for name in names for path in sorted(folder.glob(f"{name}*"))[:1]]
    if not found:
        return None
    if len(found) < len(names):
        raise _wrong(folder, "all of MNIST", _MNIST_EXPECTED)
    sides = []
    for images, labels in (found[:2], found[2:]):
        x, y = _read_idx(images, dimensions=3), _read_idx(labels, dimensions=1)
        x, y = _checked(x, y, (MNIST_SIDE, MNIST_SIDE), images, labels)
        sides.append((x[..., np.newaxis], y))
    return Images(*sides[0], *sides[1], "MNIST from the given folder", classes=DIGITS)


_IDX = ("images?idx3", "labels?idx1")


def _read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    with _reading(path, "a gzip file"):
        content = path.read_bytes()
        # By its first bytes: browsers decompress a file and leave its name.
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    start, magic = 4 + 4 * dimensions, bytes((0, 0, 8, dimensions))
    wanted = (
        f"an idx file of bytes with {dimensions} dimensions, which begins with {magic.hex(' ')}"
    )
    wanted += f" and {start - 4} bytes more"
    _expect(len(content) >= start and content[:4] == magic, path, wanted, content[:4].hex(" "))
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
_CIFAR_EXPECTED = (
    "data_batch_1 to data_batch_5 and test_batch, CIFAR-10's python batches, in the folder or in "
    "cifar-10-batches-py/; or data_batch_*.npz or train*.npz, and test*.npz, with the arrays x "
    "(N, 32, 32, 3) and y (N)"
)


def _read_cifar10(folder: Path) -> Images | None:
    names: Any = None
    train = sorted(folder.glob("data_batch_*.npz")) or sorted(folder.glob("train*.npz"))
    test, read = sorted(folder.glob("test*.npz")), _read_npz
    if train and test:
        with contextlib.suppress(OSError, ValueError):
            names = json.loads((folder / "classes.json").read_text())
    else:
        read = _read_python
        train, test = sorted(folder.glob("data_batch_[1-5]")), sorted(folder.glob("test_batch"))
        if not train and not test:
            return None
        if not train or not test:
            missing = "test_batch" if train else "data_batch_1 to data_batch_5"
            raise _wrong(folder, f"all of CIFAR-10: {missing} is missing", _CIFAR_EXPECTED)
        if (folder / "batches.meta").is_file():
            names = _read_batch(folder / "batches.meta").get("label_names")
    sides = [
        (np.concatenate(x), np.concatenate(y))
        for x, y in (zip(*map(read, paths), strict=True) for paths in (train, test))
    ]
    classes = names if isinstance(names, list) and len(names) == 10 else _CIFAR_CLASSES
    source = "CIFAR-10 from the given folder"
    return Images(*sides[0], *sides[1], source, classes=tuple(map(_text, classes)))


def _read_npz(path: Path) -> Pair:
    # No pickle: a folder of data must not run code.
    with _reading(path, "an npz file"), np.load(path, allow_pickle=False) as arrays:
        good = "x" in arrays and "y" in arrays
        _expect(good, path, "the arrays x and y", ", ".join(arrays) or "none")
        x, y = arrays["x"], arrays["y"]
    return _checked(x, y, _CIFAR_SHAPE, path, path)


def _read_python(path: Path) -> Pair:
    batch = _read_batch(path)
    good = "data" in batch and "labels" in batch
    _expect(good, path, "a dictionary with data and labels", ", ".join(batch) or "nothing")
    flat, length = np.asarray(batch["data"]), math.prod(_CIFAR_SHAPE)
    good = flat.ndim == 2 and flat.shape[1] == length
    _expect(good, path, f"rows of {length} bytes", f"an array of shape {flat.shape}")
    # A row holds the red plane, then green, then blue.
    x = flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _checked(x, np.asarray(batch["labels"]), _CIFAR_SHAPE, path, path)


def _read_batch(path: Path) -> dict[str, Any]:
    """Read one python batch, and run nothing of it."""
    with _reading(path, "a python batch of CIFAR-10"), path.open("rb") as file:
        found = _PlainUnpickler(file, encoding="bytes").load()
    good = isinstance(found, dict)
    _expect(good, path, "a dictionary with data and labels", f"a {type(found).__name__}")
    return {_text(key): value for key, value in found.items()}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class _PlainUnpickler(pickle.Unpickler):
    """A pickle can name any function and call it; here, only those that build NumPy arrays."""

    def __init__(self, file: Any, *, encoding: str) -> None:
        super().__init__(file, encoding=encoding)
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


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy._core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy._core.multiarray", "scalar"): multiarray.scalar,
    ("numpy._core.numeric", "_frombuffer"): numeric._frombuffer,  # type: ignore[attr-defined]
    # Old protocols write bytes as text.
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),
}


# Class folders: train/<class>/ and test/<class>/, or <class>/ alone.

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "valid", "validation")
# One image of five is for testing, where nothing says which.
_TEST_EVERY = 5


def _read_class_folders(folder: Path, *, source: str) -> ImageFiles | None:
    """Find images with a folder for each class.

    Without train/ and test/, a fifth of each class is for testing, chosen by the files' names: the
    same on every machine. A class with a single image is trained on, not tested.
    """
    train, test = (
        next((_by_class(folder / name) for name in names if (folder / name).is_dir()), None)
        for names in (_TRAIN, _TEST)
    )
    if train is None or test is None:
        if sum(bool(_images(one)) for one in _subfolders(folder)) < 2:
            return None
        train, test = _by_class(folder), {}
        for name, files in train.items():
            files.sort(key=lambda file: (_hash(f"{file.parent.name}/{file.name}"), file.name))
            count = max(1, round(len(files) / _TEST_EVERY)) if len(files) > 1 else 0
            test[name], train[name] = files[:count], files[count:]
    unknown = [name for name in test if name not in train]
    if unknown:
        raise DataError(
            f"{folder} has images of the class {unknown[0]} to test on, and none to learn it "
            f"from. Classes to train on: {', '.join(train)}."
        )
    found = [
        (file, label, side is test)
        for side in (train, test)
        for label, name in enumerate(train)
        for file in side.get(name, [])
    ]
    untested = [name for name in train if not test.get(name)]
    source += f"; without an image to test on: {', '.join(untested)}" if untested else ""
    return _image_files(folder, found, source=source, classes=tuple(train))


def _subfolders(folder: Path) -> list[Path]:
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
    _expect(len(images) >= 2, folder, "a folder for each of the classes", _listing(folder))
    for name, found in images.items():
        one = folder / name
        _expect(bool(found), one, f"images ({', '.join(ENDINGS)})", _listing(one))
    return images


def _image_files(
    where: Path, found: Sequence[tuple[Path, float, bool]], **other: Any
) -> ImageFiles:
    """Return files with label and side; refuse data that leave one side without an image."""
    files, labels, is_test = zip(*found, strict=True) if found else ((), (), ())
    if not any(is_test) or all(is_test):
        raise DataError(
            f"{where} has {len(files) - sum(is_test)} images for training and {sum(is_test)} for "
            "testing: both are needed."
        )
    numbers = np.array(labels, np.int64 if "classes" in other else np.float32)
    other = {"groups": numbers, **other}
    return ImageFiles(files=files, labels=numbers, is_test=np.array(is_test, np.bool_), **other)


# labels.csv: what is on which image, and which images are for testing.

LABELS = "labels.csv"
_SPLITS = {"train": False, "test": True, "val": True, "valid": True, "validation": True}


def _read_rows(
    path: Path, needed: Sequence[str], headless: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Read a table: where each line is, for errors, and its values by column.

    One without a header has the columns `headless`, with numbers in `needed[-1]`.
    """
    # utf-8-sig: spreadsheets put a mark before the first column's name.
    with _reading(path, "a table in CSV"), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        stripped = ((reader.line_num, [*map(str.strip, row)]) for row in reader)
        lines = [(number, row) for number, row in stripped if any(row)]
    header: Sequence[str] = lines[0][1] if lines else ["nothing"]
    if all(name in header for name in needed):
        del lines[0]
    else:
        number = _number(dict(zip(headless, header, strict=False)).get(needed[-1], ""))
        columns = ", ".join(headless) + ", with or without a header" if headless else ""
        wanted = f"the columns {columns or ' and '.join(needed)}"
        _expect(number is not None, path, wanted, ", ".join(header))
        header = headless[: len(header)]
    for at, line in lines:
        where = f"{path}, line {at}"
        _expect(len(line) >= len(header), where, f"{len(header)} columns", f"{len(line)}")
        yield where, dict(zip(header, line, strict=False))


def _is_test(where: str, values: dict[str, str], name: str) -> bool:
    """Decide by the column split, or else by the image's name."""
    split = values.get("split")
    if split is None:
        return in_test(name)
    if split.lower() not in _SPLITS:
        raise DataError(f"{where}: unknown split {split!r}. Choose from {', '.join(_SPLITS)}.")
    return _SPLITS[split.lower()]


def in_test(name: str) -> bool:
    """Decide by its name alone whether an image is for testing: the same on every machine."""
    return _hash(name) % _TEST_EVERY == 0


def _hash(name: str) -> int:
    return zlib.crc32(name.encode(errors="surrogateescape"))


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) else None
    return None


# A drive: labels.csv, or the log of Udacity's simulator.

_LOG = "driving_log.csv"
_LOG_COLUMNS = ("center", "left", "right", "steering", "throttle", "brake", "speed")
# The part of the simulator's 160 rows between the trees and the bonnet.
_LOG_ROWS = (60 / 160, 135 / 160)
# The steering is balanced in so many steps from straight ahead to fully aside.
_STEPS = 4


def _read_drive(folder: Path) -> ImageFiles | None:
    log = not (folder / LABELS).is_file()
    path = folder / (_LOG if log else LABELS)
    if not path.is_file():
        return None
    column, files = "center" if log else "file", []
    for where, values in _read_rows(path, (column, "steering"), _LOG_COLUMNS if log else ()):
        # The log has the paths of the machine where the car was driven, often a Windows one.
        name = f"IMG/{PureWindowsPath(values[column]).name}" if log else values[column]
        steering, file = _number(values["steering"]), folder / name
        if steering is None or not -1 <= steering <= 1:
            raise DataError(
                f"{where}: the steering {values['steering']!r} is not a number of -1, fully left, "
                "to 1, fully right."
            )
        files.append((file, steering, _is_test(where, values, file.name)))
    groups = np.round(np.array([steering for _, steering, _ in files], np.float32) * _STEPS)
    rows, source = _LOG_ROWS if log else (0.0, 1.0), "a drive from the given folder"
    return _image_files(path, files, groups=groups, source=source, rows=rows)


# Faces with ages: labels.csv, or the lists of IMDB-WIKI's archives wiki_crop and imdb_crop.

AGE_GROUPS = ("0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70 and more")
_AGE_BOUNDS, _OLDEST = (3, 10, 20, 30, 40, 50, 60, 70), 100
_LISTS = ("wiki.mat", "imdb.mat")
_LIST_COLUMNS = ("dob", "photo_taken", "full_path", "face_score")
# MATLAB counts days from the year 0, Python from the year 1.
_MATLAB_DAYS = 366


def _read_faces(folder: Path) -> ImageFiles | None:
    """Find images of faces and their age groups."""
    path, files = folder / LABELS, []
    if not path.is_file():
        lists = [folder / name for name in _LISTS if (folder / name).is_file()]
        return _read_imdb_wiki(lists[0]) if lists else None
    for where, values in _read_rows(path, ("file", "age_class")):
        text, file = values["age_class"], folder / values["file"]
        if not text.isdecimal():
            raise DataError(f"{where}: the age_class {text!r} is not a whole number of 0 to 8.")
        files.append((file, int(text), _is_test(where, values, file.name)))
    _check_range(np.array([label for _, label, _ in files], int), len(AGE_GROUPS), path)
    return _image_files(path, files, source="faces from the given folder", classes=AGE_GROUPS)


def _read_imdb_wiki(path: Path) -> ImageFiles:
    """Read IMDB-WIKI's list; its makers take the age on 1 July of the year of the photo."""
    from scipy.io import loadmat

    what = f"IMDB-WIKI's list, a MATLAB file with as many of each: {', '.join(_LIST_COLUMNS)}"
    with _reading(path, what):
        table = loadmat(path, variable_names=[path.stem], squeeze_me=True)[path.stem]
        born, taken, names, scores = (np.atleast_1d(table[name].item()) for name in _LIST_COLUMNS)
        ages = np.array([_age(*pair) for pair in zip(born.tolist(), taken.tolist(), strict=True)])
        aged = (ages >= 0) & (ages <= _OLDEST)
        # Where no face was found, the image is all of the photo.
        usable = aged & np.isfinite(scores.astype(np.float64))
        labels = np.digitize(ages, _AGE_BOUNDS)
        files = [
            (path.parent / str(name), int(label), in_test(str(name)))
            for name, label in zip(names[usable], labels[usable], strict=True)
        ]
    if 2 * len(files) < len(ages):
        raise DataError(
            f"{path}: {len(ages) - len(files):,} of {len(ages):,} entries have no usable age (0 "
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
    source = f"IMDB-WIKI's {path.stem}_crop from the given folder"
    return _image_files(path, files, source=source, skipped=skipped, classes=AGE_GROUPS)


def _age(born: float, taken: float) -> int:
    """Return the age in years, -1 where the date of birth is none."""
    try:
        birth = date.fromordinal(int(born) - _MATLAB_DAYS)
    except (ValueError, OverflowError):
        return -1
    return int(taken) - birth.year - ((birth.month, birth.day) > (7, 1))


LAYOUTS = {
    "mnist": Layout("MNIST", _MNIST_EXPECTED, _read_mnist, ("raw", "MNIST/raw")),
    "cifar10": Layout("CIFAR-10", _CIFAR_EXPECTED, _read_cifar10, ("cifar-10-batches-py",)),
    "driving": Layout(
        "a drive",
        f"{LABELS} with the columns file and steering, and the files that it names; or the "
        f"simulator's {_LOG} and IMG/, in the folder or in data/",
        _read_drive,
        ("data",),  # in Udacity's archive
    ),
    "fruits": Layout(
        "fruit",
        "train/<class>/ and test/<class>/ with images, in the folder or in dataset/; Kaggle's "
        "classes are freshapples, freshbanana, freshoranges, rottenapples, rottenbanana and "
        "rottenoranges",
        partial(_read_class_folders, source="fruit from the given folder"),
        # Kaggle's archive has the folders twice, one of them in a folder more.
        ("dataset", "dataset/dataset"),
    ),
    "caltech": Layout(
        "categories",
        "256_ObjectCategories/ as Caltech has it (001.ak47/, 002.american-flag/, ...), or another "
        "folder with a folder for each category, of which a fifth is for testing; or "
        "train/<category>/ and test/<category>/",
        partial(_read_class_folders, source="photos by category from the given folder"),
        ("256_ObjectCategories", "101_ObjectCategories"),
    ),
    "faces": Layout(
        "faces",
        f"{LABELS} with the columns file and age_class (0 to 8), and the files that it names; or "
        f"IMDB-WIKI's wiki_crop/ with {_LISTS[0]}, or imdb_crop/ with {_LISTS[1]}",
        _read_faces,
        ("wiki_crop", "imdb_crop"),
    ),
}

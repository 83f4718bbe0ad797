"""Image files with their labels, before they are read; and reading those that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.images import Skipped, decode
from farandole.labs.data.samples import Images, Labels, Pixels, pick_test, pick_train

_WHOLE = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """Files that hold an image each, and what is on it."""

    files: tuple[Path, ...]
    labels: Labels
    """int64 for classes, float32 for a quantity."""
    groups: Labels
    """What subsets are balanced by: the classes, or steps of a quantity."""
    is_test: NDArray[np.bool_]
    source: str
    """In words: "fruit from the given folder"."""
    skipped: tuple[str, ...] = ()
    """What was left out before any file was opened, with the reason each."""
    classes: tuple[str, ...] = ()
    """Names of the classes by label; empty for a quantity."""


def read_images(
    found: Labelled,
    size: tuple[int, int],
    *,
    samples: int = 0,
    test_samples: int = 0,
    rows: tuple[float, float] = _WHOLE,
) -> Images:
    """Read the first images of the fixed order; only those are decoded.

    Args:
        found: where they are.
        size: height and width to scale to.
        samples: so many to train on; 0 for all.
        test_samples: so many to test on; 0 for all.
        rows: take this part of the height only.

    Raises:
        DataError: most images cannot be read.
        UsageError: there are not so many samples.
    """
    x_train, y_train, bad_train = _take(found, size, samples, rows, test=False)
    x_test, y_test, bad_test = _take(found, size, test_samples, rows, test=True)
    return Images(
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        source=found.source,
        skipped=(*found.skipped, *map(str, (*bad_train, *bad_test))),
        classes=found.classes,
    )


def _take(
    found: Labelled, size: tuple[int, int], samples: int, rows: tuple[float, float], *, test: bool
) -> tuple[Pixels, Labels, tuple[Skipped, ...]]:
    members = np.flatnonzero(found.is_test == test)
    chosen = members[(pick_test if test else pick_train)(found.groups[members], samples)]
    x, skipped = decode([found.files[index] for index in chosen], size, rows=rows)
    return x, np.delete(found.labels[chosen], [skip.index for skip in skipped]), skipped

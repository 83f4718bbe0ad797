"""Images with their labels, and the fixed order from which a subset is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError, UsageError

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

Pixels = NDArray[np.uint8]
Labels = NDArray[Any]

# Any numbers would do, as long as they stay: every rank and every run takes the same subset.
_TRAIN_SEED = 20_171
_TEST_SEED = 20_172


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """Images to train on and to test on."""

    x_train: Pixels
    """Images, height, width, channels."""
    y_train: Labels
    """int64 for classes, float32 for a quantity."""
    x_test: Pixels
    y_test: Labels
    source: str
    """In words: "MNIST from the given folder"."""
    skipped: tuple[str, ...] = ()
    """Files that could not be read, with the reason each."""
    classes: tuple[str, ...] = ()
    """Names of the classes by label; empty for a quantity."""

    @property
    def facts(self) -> DataFacts:
        """What these data are, without the data."""
        return facts(
            source=self.source,
            train=len(self.y_train),
            test=len(self.y_test),
            shape=self.x_train.shape[1:],
            skipped=self.skipped,
        )


def facts(
    *, source: str, train: int, test: int, shape: tuple[int, ...], skipped: tuple[str, ...] = ()
) -> DataFacts:
    """Say what data are, with one sample in words: "32x32 RGB"."""
    # Here, because every worker loads data, and needs nothing of what a lab is.
    from farandole.labs.lab import DataFacts

    height, width, channels = shape
    sample = f"{height}x{width} {'grey' if channels == 1 else 'RGB'}"
    return DataFacts(source=source, train=train, test=test, sample=sample, skipped=skipped)


def subset(images: Images, *, samples: int, test_samples: int) -> Images:
    """Take the first images of the fixed order; all of them, in that order, for 0.

    Raises:
        UsageError: there are not so many.
    """
    train = pick_train(images.y_train, samples)
    test = pick_test(images.y_test, test_samples)
    return Images(
        x_train=images.x_train[train],
        y_train=images.y_train[train],
        x_test=images.x_test[test],
        y_test=images.y_test[test],
        source=images.source,
        skipped=images.skipped,
        classes=images.classes,
    )


def pick_train(groups: Labels, samples: int) -> NDArray[np.intp]:
    """Return which training samples to take."""
    count = wanted(samples, len(groups), "training", "--samples")
    return balanced_order(groups, seed=_TRAIN_SEED)[:count]


def pick_test(groups: Labels, samples: int) -> NDArray[np.intp]:
    """Return which test samples to take."""
    count = wanted(samples, len(groups), "test", "--test-samples")
    return balanced_order(groups, seed=_TEST_SEED)[:count]


def wanted(samples: int, available: int, what: str, flag: str) -> int:
    """Return how many samples to take; 0 asks for all.

    Raises:
        UsageError: less than none, or more than there are.
    """
    if samples < 0:
        raise UsageError(
            f"You asked for {samples} {what} samples ({flag} {samples}). "
            "Give a number of samples, or 0 for all."
        )
    if samples > available:
        raise UsageError(
            f"You asked for {samples:,} {what} samples ({flag} {samples}), but there are "
            f"{available:,}. Use {flag} {available}, or 0 for all."
        )
    return samples or available


def balanced_order(groups: Labels, *, seed: int) -> NDArray[np.intp]:
    """Shuffle so that every beginning holds each group in its share of the whole.

    The members of a group of n get places one in each n-th of the way, at random inside of it.
    """
    random = np.random.default_rng(seed)
    place = np.empty(len(groups))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        random.shuffle(members)
        place[members] = (np.arange(len(members)) + random.random(len(members))) / len(members)
    return np.argsort(place, kind="stable")


def checked_labels(labels: NDArray[Any], num_classes: int, where: str) -> NDArray[np.int64]:
    """Return the labels as numbers of classes.

    Raises:
        DataError: one is not a class; names the first.
    """
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


def check_counts(images: int, labels: int, images_in: str, labels_in: str) -> None:
    """Refuse images and labels of unequal number.

    Raises:
        DataError: they differ, or there are none.
    """
    if images != labels:
        raise DataError(
            f"{images_in} holds {images:,} images, but {labels_in} holds {labels:,} labels: "
            "every image needs one. One of the two is incomplete, or from another data set."
        )
    if not images:
        raise DataError(f"{images_in} holds no image.")

"""A car's camera and the steering, from Udacity's simulator; a drawn road in its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole.labs.data import road
from farandole.labs.data.driving_log import LOG, read_labels, read_log
from farandole.labs.data.folder import existing_folder, first_folder, wrong_shape
from farandole.labs.data.labelled import Labelled, read_images
from farandole.labs.data.samples import Images, facts, wanted
from farandole.labs.data.table import LABELS

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

SIZE = (66, 200)
"""Height and width that PilotNet takes."""

# The part of the simulator's 160 rows between the trees and the bonnet.
_ROAD = (60 / 160, 135 / 160)
_WHOLE = (0.0, 1.0)
# Udacity's archive has a folder data in it.
_BELOW = ("data",)
_EXPECTED = (
    f"{LABELS} with the columns file and steering, and the files that it names; or the "
    f"simulator's {LOG} and IMG/, in the folder or in data/"
)
_GENERATED = "a generated road"


def load_driving(
    folder: Path | str | None = None, *, samples: int = 0, test_samples: int = 0
) -> Images:
    """Load a drive, or a generated one.

    Args:
        folder: holds labels.csv and images, or the simulator's log; None for a generated road.
        samples: train on so many, the same in every run; 0 for all.
        test_samples: test on so many; 0 for all.

    Raises:
        DataError: the folder holds something else, or most images cannot be read.
        UsageError: there are not so many samples.
    """
    if folder is None:
        return _generate(samples, test_samples)
    drive, rows = _find(existing_folder(folder, "the drive"))
    return read_images(drive, SIZE, samples=samples, test_samples=test_samples, rows=rows)


def describe_driving(folder: Path | str | None = None) -> DataFacts:
    """Look at the data as a whole, as `load_driving` does, and say what they are."""
    if folder is None:
        return facts(source=_GENERATED, train=road.TRAIN, test=road.TEST, shape=(*SIZE, 3))
    return load_driving(folder).facts


def _find(folder: Path) -> tuple[Labelled, tuple[float, float]]:
    """Return the drive, and which part of its images' rows to take."""
    found = first_folder(folder, _BELOW, (LABELS, LOG))
    if found is None:
        raise wrong_shape(folder, "a folder with a drive", _EXPECTED)
    if (found / LABELS).is_file():
        return read_labels(found / LABELS), _WHOLE
    return read_log(found / LOG), _ROAD


def _generate(samples: int, test_samples: int) -> Images:
    train = wanted(samples, road.TRAIN, "training", "--samples")
    test = wanted(test_samples, road.TEST, "test", "--test-samples")
    x_train, y_train = road.drive(train)
    x_test, y_test = road.drive(test, test=True)
    return Images(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, source=_GENERATED)

"""A set of photos that a lab takes, of any size; drawn images in their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.labs.data.drawn import Drawn
from farandole.labs.data.folder import existing_folder
from farandole.labs.data.labelled import Labelled, read_images
from farandole.labs.data.samples import Images, facts, wanted

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

SIZE = 128
"""Pixels of a side, where nobody asks for another number."""

# Networks halve an image five times.
_LEAST = 32
# To see whether a file can be read, a small image will do: JPEGs are decoded at an eighth.
_LOOK = (16, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Photos:
    """One of the labs' sets of photos."""

    what: str
    """For errors: "the fruit"."""
    find: Callable[[Path], Labelled]
    """Finds them in a folder, and opens no image."""
    drawn: Drawn

    def load(
        self, folder: Path | str | None, *, samples: int, test_samples: int, size: int
    ) -> Images:
        """Load photos, or draw images; sizes other than their own are scaled to."""
        if size < _LEAST:
            raise UsageError(
                f"You asked for images of {size} pixels a side (--image-size {size}), and the "
                f"networks need {_LEAST} at least. Use --image-size {_LEAST} or more."
            )
        if folder is None:
            return self._draw(samples, test_samples, size)
        found = self.find(existing_folder(folder, self.what))
        return read_images(found, (size, size), samples=samples, test_samples=test_samples)

    def describe(self, folder: Path | str | None, *, size: int) -> DataFacts:
        """Look at the data as a whole, and say what they are."""
        if folder is None:
            drawn, shape = self.drawn, (size, size, 3)
            return facts(source=drawn.source, train=drawn.train, test=drawn.test, shape=shape)
        look = read_images(self.find(existing_folder(folder, self.what)), _LOOK)
        return facts(
            source=look.source,
            train=len(look.y_train),
            test=len(look.y_test),
            shape=(size, size, 3),
            skipped=look.skipped,
        )

    def _draw(self, samples: int, test_samples: int, size: int) -> Images:
        train = wanted(samples, self.drawn.train, "training", "--samples")
        test = wanted(test_samples, self.drawn.test, "test", "--test-samples")
        x_train, y_train = self.drawn.draw(train, size)
        x_test, y_test = self.drawn.draw(test, size, test=True)
        return Images(
            x_train=x_train,
            y_train=y_train,
            x_test=x_test,
            y_test=y_test,
            source=self.drawn.source,
            classes=self.drawn.classes,
        )

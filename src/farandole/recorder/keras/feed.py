"""The batches that Keras fetches: how many samples, and how long training waited for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.recorder.recorder import Recorder
from farandole.recorder.sampling import BATCHES, MOST_SAMPLES, arrays_of, hash_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch on its way into training."""

    begin_s: float | None
    """When training began to wait for it; None where that is the begin of its step."""
    end_s: float
    samples: int | None
    hashes: tuple[str, ...] = ()


class Feed:
    """Keeps what was fetched until a step ends; what was fetched for something else is dropped."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._aside: list[list[Batch]] = []
        self._hashes: list[str] = []
        self._left_to_hash = BATCHES
        self.dataset_size: int | None = None
        """Samples of an epoch, of all workers together, where that is known."""

    def fetched(self, data: Any, begin_s: float | None, end_s: float) -> None:
        """Take note of a batch; called by whichever thread fetches."""
        arrays = arrays_of(data)
        samples = _samples(arrays)
        hashes: tuple[str, ...] = ()
        if self._left_to_hash and samples:
            hashes = tuple(hash_samples(arrays, samples))
        self._batches.append(Batch(begin_s=begin_s, end_s=end_s, samples=samples, hashes=hashes))

    def drop(self) -> None:
        """Forget what was fetched, since that was not for training."""
        self._batches.clear()
        self._aside.clear()

    def set_aside(self) -> None:
        """Keep what training has; what is fetched from here on is for an evaluation."""
        self._aside.append(self._batches)
        self._batches = []

    def return_to_training(self) -> None:
        """Forget what an evaluation has fetched."""
        if self._aside:
            self._batches = self._aside.pop()

    def take(self, recorder: Recorder) -> list[Batch]:
        """Return the batches that training has had since the last call."""
        batches, self._batches = self._batches, []
        if self._left_to_hash and batches:
            self._keep_hashes(batches, recorder)
        return batches

    def _keep_hashes(self, batches: list[Batch], recorder: Recorder) -> None:
        for batch in batches[: self._left_to_hash]:
            self._hashes += batch.hashes[: MOST_SAMPLES - len(self._hashes)]
        if self._left_to_hash == BATCHES:
            recorder.add_ending(lambda: self._tell(recorder))
        self._left_to_hash = max(0, self._left_to_hash - len(batches))
        if not self._left_to_hash:
            self._tell(recorder)

    def _tell(self, recorder: Recorder) -> None:
        if self._hashes:
            recorder.setup(sample_hashes=self._hashes)


def _samples(arrays: list[Any]) -> int | None:
    # As Keras counts: by the first input.
    return next((int(array.shape[0]) for array in arrays if len(array.shape)), None)

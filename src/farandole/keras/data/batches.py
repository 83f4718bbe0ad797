"""Sharded arrays and sharded PyDatasets: a rank's batches, as a PyDataset.

The i-th batch is the i-th step of the epoch that is under way. See `epochs` for which one that is,
and `adapter` for what keeps `fit` from shuffling it once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from farandole.keras.data import adapter
from farandole.keras.data.ahead import Ahead
from farandole.keras.data.epochs import Epochs
from farandole.keras.data.split import Indices, Split, indices, remark
from farandole.keras.data.terms import Terms

Taker = Callable[[Indices], Any]
Prepare = Callable[[Any, Indices, int], Any]
"""Makes of a batch what the model gets: from the batch, its samples' numbers and the epoch."""


class ShardedBatches(keras.utils.PyDataset):  # type: ignore[misc]
    """One rank's batches of each epoch, in an order that all ranks agree on."""

    unit: str

    def __init__(self, split: Split, terms: Terms, **loading: Any) -> None:
        super().__init__(**loading)
        adapter.install(ShardedBatches)
        self.split = split
        self.steps = split.steps(terms.rank)
        self.dropped, self.padded = split.dropped, split.padded
        self.remark = remark(split, self.unit)
        self._terms = terms
        self._epochs = Epochs(terms.initial_epoch)
        self._share: tuple[int, Indices] = (-1, np.empty(0, np.int64))
        self._within = self._at_end = False

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; `fit` is made to say so by itself."""
        self._epochs.tell(epoch)

    def __len__(self) -> int:
        return self.steps

    @property
    def num_batches(self) -> int:
        """Return the number of steps of this rank in an epoch."""
        return self.steps

    def __getitem__(self, index: int) -> Any:
        batch = self._batch(self._epochs.current, index)
        if index == self.steps - 1:
            self._at_end = True
        return batch

    def __iter__(self) -> Iterator[Any]:
        """Go over the epoch that is under way: for loops of one's own."""
        epoch = self._epochs.current
        for index in range(self.steps):
            yield self._batch(epoch, index)
        self._epochs.finish()

    def on_epoch_begin(self) -> None:
        """Note that Keras is about to go over the data."""
        self._within = True

    def on_epoch_end(self) -> None:
        """Move on to the next epoch, if all of this one was taken."""
        # Threads and processes read ahead, ranks differently far, so that what was read tells
        # nothing: then the look at a first batch counts, too, on all ranks alike.
        ahead = self.workers > 1 or (self.workers > 0 and self.use_multiprocessing)
        if self._within and (self._at_end or ahead):
            self._epochs.finish()
        self._within = self._at_end = False

    def as_tf_dataset(self) -> Any | None:
        """Return this as TensorFlow takes it fastest, if there is a way that beats Keras's."""
        return None

    def _batch(self, epoch: int, index: int) -> Any:
        if not 0 <= index < self.steps:
            raise IndexError(f"Batch {index} of {self.steps}.")
        return self._take(self._chosen(epoch, index))

    def _chosen(self, epoch: int, index: int) -> Indices:
        first = index * self.split.batch
        return self._share_of(epoch)[first : first + self.split.batch]

    def _take(self, chosen: Indices) -> Any:
        raise NotImplementedError

    def _share_of(self, epoch: int) -> Indices:
        # Taken at once: other threads may ask meanwhile.
        known, share = self._share
        if known != epoch:
            share = indices(self.split, self._terms.rank, seed=self._terms.order_seed, epoch=epoch)
            self._share = (epoch, share)
        return share


class ShardedArrays(ShardedBatches):
    """A rank's batches of arrays, taken by index when they are asked for."""

    unit = "samples"

    def __init__(self, taker: Taker, split: Split, terms: Terms) -> None:
        # Threads would cost more than taking a batch does.
        super().__init__(split, terms, workers=0)
        self._taker = taker

    def as_tf_dataset(self) -> Any | None:
        """Return a dataset that asks for the batches one by one."""
        from farandole.keras.data.tf_arrays import batches_of

        return batches_of(self.__getitem__, self.steps, self._example())

    def _example(self) -> Any:
        """Return a batch of any size, to see types and shapes."""
        return self._taker(np.zeros(1, np.int64))

    def _take(self, chosen: Indices) -> Any:
        return self._taker(chosen)


class PreparedArrays(ShardedArrays):
    """A rank's batches of arrays, each prepared by the program, ahead of the step."""

    def __init__(self, taker: Taker, split: Split, terms: Terms, prepare: Prepare) -> None:
        super().__init__(taker, split, terms)
        self._prepare = prepare
        self._ahead = Ahead(self._make, self.steps)

    def _batch(self, epoch: int, index: int) -> Any:
        if not 0 <= index < self.steps:
            raise IndexError(f"Batch {index} of {self.steps}.")
        return self._ahead.take(epoch, index)

    def close(self) -> None:
        """End the thread that is ahead; asking for a batch begins another."""
        self._ahead.close()

    def _example(self) -> Any:
        return self._prepare(super()._example(), np.zeros(1, np.int64), 0)

    def _make(self, epoch: int, index: int) -> Any:
        chosen = self._chosen(epoch, index)
        return self._prepare(self._taker(chosen), chosen, epoch)


class ShardedPyDataset(ShardedBatches):
    """A rank's batches of a PyDataset; loaded in as many threads or processes as that one says."""

    unit = "batches"

    def __init__(self, source: Any, split: Split, terms: Terms) -> None:
        super().__init__(
            split,
            terms,
            workers=source.workers,
            use_multiprocessing=source.use_multiprocessing,
            max_queue_size=source.max_queue_size,
        )
        self.source = source

    def on_epoch_begin(self) -> None:
        """Tell the program's own dataset, too."""
        super().on_epoch_begin()
        self.source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Tell the program's own dataset, too."""
        super().on_epoch_end()
        self.source.on_epoch_end()

    def __iter__(self) -> Iterator[Any]:
        """Go over the epoch that is under way, as `fit` would."""
        self.source.on_epoch_begin()
        yield from super().__iter__()
        self.source.on_epoch_end()

    def _take(self, chosen: Indices) -> Any:
        return self.source[int(chosen[0])]

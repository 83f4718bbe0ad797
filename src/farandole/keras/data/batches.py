"""Sharded arrays and sharded PyDatasets: a rank's batches, as a PyDataset.

The i-th batch is the i-th step of the epoch that is under way. See `epochs` for which one that is,
and `install_adapter` for what keeps `fit` from shuffling it once more.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from farandole.errors import UsageError
from farandole.keras.data.split import Epochs, Indices, Split, Terms, indices, remark

Taker = Callable[[Indices], Any]
Prepare = Callable[[Any, Indices, int], Any]
"""Makes of a batch what the model gets: from the batch, its samples' numbers and the epoch."""


class ShardedBatches(keras.utils.PyDataset):  # type: ignore[misc]
    """One rank's batches of each epoch, in an order that all ranks agree on."""

    unit: str

    def __init__(self, split: Split, terms: Terms, **loading: Any) -> None:
        super().__init__(**loading)
        install_adapter(ShardedBatches)
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
        from farandole.keras.data.tf_dataset import batches_of

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
        self._ahead = Prefetcher(self._make, self.steps)

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


_Array = np.ndarray[Any, Any]


def is_arrays(data: Any) -> bool:
    """Say whether this is an array, or tuples, lists and dicts of arrays."""
    if isinstance(data, dict):
        return bool(data) and all(map(is_arrays, data.values()))
    if isinstance(data, tuple | list):
        members = [member for member in data if member is not None]
        return bool(members) and all(map(is_arrays, members))
    # Sparse matrices and ragged tensors have no plain array inside.
    return hasattr(data, "__array__") and hasattr(data, "shape")


def to_numpy(data: Any) -> Any:
    """Return the same structure with NumPy arrays in it; copies nothing that is one already."""
    if isinstance(data, dict):
        return {name: to_numpy(member) for name, member in data.items()}
    if isinstance(data, tuple | list):
        # Keras reads a list of arrays in a dataset as the tuple (x, y).
        return tuple(map(to_numpy, data))
    if data is None or isinstance(data, np.ndarray):
        return data
    if hasattr(data, "detach"):
        data = data.detach().cpu()
    return np.asarray(data)


def common_length(data: Any) -> int:
    """Return the number of samples of all arrays of a structure.

    Raises:
        UsageError: it differs between them, or the structure is not one that Keras can use.
    """
    if isinstance(data, tuple) and len(data) > 3:
        raise UsageError(
            f"A tuple of {len(data)} arrays was given; Keras knows (x,), (x, y) and "
            "(x, y, sample_weight). Put several inputs into a tuple or dict of their own: "
            "((a, b), y)."
        )
    arrays = dict(_named(data, ""))
    scalars = [name for name, array in arrays.items() if not array.ndim]
    if scalars:
        raise UsageError(
            f"data{scalars[0]} is a single value; arrays need a first dimension of samples."
        )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"data{name} {length}" for name, length in lengths.items())
        raise UsageError(
            f"The arrays have different numbers of samples: {each}. Give each sample one row in "
            "every array."
        )
    return next(iter(lengths.values()))


def taker_of(data: Any) -> Taker:
    """Return a function that takes chosen samples out of all arrays of a structure."""
    if data is None:
        return lambda chosen: None
    if isinstance(data, dict):
        named = {name: taker_of(member) for name, member in data.items()}
        return lambda chosen: {name: take(chosen) for name, take in named.items()}
    if isinstance(data, tuple):
        takers = tuple(map(taker_of, data))
        return lambda chosen: tuple([take(chosen) for take in takers])
    wanted = _batch_type(data)
    # The faster way, but it would first make a straight copy of all that is not in C's order.
    straight = data.flags.c_contiguous and data.flags.aligned

    def take(chosen: Indices) -> _Array:
        batch: _Array = data.take(chosen, axis=0) if straight else data[chosen]
        return batch if wanted is None else batch.astype(wanted)

    return take


def _batch_type(array: _Array) -> str | None:
    """Return what a batch is to be cast to: floats become Keras's float type, as in `fit(x, y)`."""
    floatx: str = keras.config.floatx()
    # By name: bfloat16 is no float for NumPy, and texts are no types for Keras.
    is_float = array.dtype.name.startswith(("float", "bfloat"))
    return floatx if is_float and array.dtype.name != floatx else None


def _named(data: Any, name: str) -> Iterator[tuple[str, _Array]]:
    if isinstance(data, dict):
        for key, member in data.items():
            yield from _named(member, f"{name}[{key!r}]")
    elif isinstance(data, tuple):
        for place, member in enumerate(data):
            yield from _named(member, f"{name}[{place}]")
    elif data is not None:
        yield name, data


_installed = False


def install_adapter(sharded: type[Any]) -> None:
    """Make Keras take this kind of PyDataset in its own order, each batch once."""
    global _installed
    if _installed:
        return
    _installed = True
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    plain_init, plain_end = PyDatasetAdapter.__init__, PyDatasetAdapter.on_epoch_end
    plain_dataset = PyDatasetAdapter.get_tf_dataset

    @functools.wraps(plain_init)
    def __init__(self: Any, x: Any, class_weight: Any = None, shuffle: bool = False) -> None:  # noqa: N807
        shuffle = shuffle and not isinstance(x, sharded)
        plain_init(self, x, class_weight=class_weight, shuffle=shuffle)

    @functools.wraps(plain_end)
    def on_epoch_end(self: Any) -> None:
        plain_end(self)
        if self.enqueuer is not None and isinstance(self.py_dataset, sharded):
            self.enqueuer.ready_queue = queue.Queue()

    @functools.wraps(plain_dataset)
    def get_tf_dataset(self: Any) -> Any:
        data = self.py_dataset
        # Weights of classes are added to batches by the adapter itself.
        ours = isinstance(data, sharded) and self.class_weight is None
        dataset = data.as_tf_dataset() if ours else None
        return plain_dataset(self) if dataset is None else dataset

    PyDatasetAdapter.__init__ = __init__
    PyDatasetAdapter.get_tf_dataset = get_tf_dataset
    PyDatasetAdapter.on_epoch_end = on_epoch_end


# One is enough while making a batch takes less than a step; the second evens out what it takes.
_AHEAD = 2

Place = tuple[int, int]
"""Epoch and step."""


class Prefetcher:
    """Batches by their place, each made once, in a thread that is a little ahead."""

    def __init__(self, make: Callable[[int, int], Any], steps: int) -> None:
        """Begin; `make` is called with an epoch and a step of `steps`."""
        self._make, self._steps = make, steps
        self._thread: ThreadPoolExecutor | None = None
        self._batches: dict[Place, Future[Any]] = {}

    def take(self, epoch: int, step: int) -> Any:
        """Return a batch, and let the next ones be made.

        What was asked for last is kept: Keras looks at a first batch before it trains.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="farandole-batches")
        made = self._batches
        self._batches = {}
        for place in following((epoch, step), self._steps, _AHEAD):
            if place in made:
                self._batches[place] = made.pop(place)
            else:
                self._batches[place] = self._thread.submit(self._make, *place)
        for left in made.values():
            left.cancel()
        return self._batches[epoch, step].result()

    def close(self) -> None:
        """End the thread; batches that nobody waits for are not made any more."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread, self._batches = None, {}


def following(place: Place, steps: int, count: int) -> list[Place]:
    """Return a place and those that come after it, in the next epoch if need be."""
    epoch, step = place
    numbers = range(epoch * steps + step, epoch * steps + step + count + 1)
    return [divmod(number, steps) for number in numbers]

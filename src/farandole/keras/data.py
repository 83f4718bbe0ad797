"""`shard`: every worker's share of the training data, of all kinds that Keras takes.

The share of arrays or of a PyDataset is a PyDataset, whose i-th batch is the i-th step of the epoch
that is under way: `split` says which one that is, and `install_adapter` keeps `fit` from shuffling
it once more.
"""

from __future__ import annotations

import functools
import queue
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from farandole.engine import context
from farandole.errors import UsageError
from farandole.keras.split import (
    Epochs,
    Indices,
    Split,
    Terms,
    agree,
    check,
    indices,
    plan,
    remark,
)

_ARRAYS, _PY_DATASET = "arrays", "keras.utils.PyDataset"
_TF_DATASET, _LOADER = "tf.data.Dataset", "torch DataLoader"
_BATCH_SIZE = 32  # Keras's own default for arrays


def shard(
    data: Any,
    batch_size: int | None = None,
    *,
    shuffle: bool | int = True,
    seed: int = 0,
    remainder: str = "drop",
    initial_epoch: int = 0,
    steps: int | None = None,
    prepare: Prepare | None = None,
) -> Any:
    """Return this worker's share of the data, for `fit`, `evaluate` and loops of one's own.

    All workers call it, with the whole data and the same arguments. Every worker then makes the
    same number of steps per epoch, and in an epoch each item goes to exactly one worker, apart
    from what `.dropped` and `.padded` of the result say.

    Args:
        data: an array, a tuple (x, y) or (x, y, sample_weight), or a dict of arrays; a
            keras.utils.PyDataset; a tf.data.Dataset; a torch DataLoader over a map-style dataset.
        batch_size: samples per worker and step; 32 for arrays if not given. For a tf.data.Dataset
            it says that elements are single samples; without it, they are batches. PyDatasets and
            DataLoaders have their own.
        shuffle: take another order in each epoch, one that all workers agree on. It takes the
            place of `fit`'s and of a DataLoader's own. For a tf.data.Dataset, a number says how
            many elements are shuffled at a time.
        seed: of the orders.
        remainder: where workers do not divide the number of items, "drop" up to size() - 1 of
            them, "pad" by giving out as many a second time, or "keep" all: shares then differ by
            one, which is right for validation and wrong for training.
        initial_epoch: which epoch comes first in loops of one's own; `fit(initial_epoch=...)` is
            followed by itself.
        steps: the largest number of steps per epoch.
        prepare: what to make of each batch of arrays, for augmentation: called with the batch, its
            samples' numbers and the epoch, in a thread that is a little ahead of training. What it
            draws from these numbers is the same for any number of workers.

    Returns:
        A keras.utils.PyDataset, a tf.data.Dataset or a DataLoader, with `.steps`, `.dropped`,
        `.padded`, `.remark` (one line that says it all) and `.set_epoch(epoch)`.

    Raises:
        UsageError: the data cannot be shared out, or differs between workers.

    Example:
        >>> train = hvd.shard((x, y), batch_size=32)  # doctest: +SKIP
        >>> test = hvd.shard((x_test, y_test), 128, shuffle=False, remainder="keep")
        >>> model.fit(train, validation_data=test, epochs=3)
    """
    terms = Terms(
        rank=context.rank(),
        size=context.size(),
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        remainder=remainder,
        initial_epoch=initial_epoch,
        steps=steps,
    )
    check(terms)
    kind = _kind(data)
    if kind != _TF_DATASET and not isinstance(shuffle, bool):
        raise UsageError(
            f"shuffle={shuffle} is how many elements a tf.data.Dataset shuffles at a time; other "
            f"data ({kind}) is shuffled as a whole. Use shuffle=True or shuffle=False."
        )
    if prepare is not None and kind != _ARRAYS:
        raise UsageError(
            f"prepare= makes batches of arrays ready; other data ({kind}) has its own way to do "
            "that. Leave prepare= out, and do it there."
        )
    if prepare is None:
        result = _MAKERS[kind](data, terms)
    else:
        result = _shard_arrays(data, terms, prepare)
    if terms.rank == 0 and (result.dropped != 0 or result.padded):
        sys.stderr.write(f"farandole: shard: {result.remark}\n")
    return result


def is_sharded(data: Any) -> bool:
    """Say whether data came from `shard`."""
    return all(hasattr(data, name) for name in ("set_epoch", "remark", "dropped", "padded"))


def sharded_part(data: Any) -> Any | None:
    """Return the sharded data that this is or, by tf.data's .map() and the like, was made from."""
    if is_sharded(data):
        return data
    if not _is_a(data, "DatasetV2", "tensorflow.python."):
        return None
    from farandole.keras import tf_data

    return next(filter(is_sharded, tf_data.parts(data)), None)


def _shard_arrays(data: Any, terms: Terms, prepare: Prepare | None = None) -> Any:
    converted = to_numpy(data)
    length = common_length(converted)
    agree(terms, _ARRAYS, length)
    batch = terms.batch_size or _BATCH_SIZE
    split = plan(length, size=terms.size, batch=batch, remainder=terms.remainder, limit=terms.steps)
    taker = taker_of(converted)
    if prepare is not None:
        return PreparedArrays(taker, split, terms, prepare)
    return ShardedArrays(taker, split, terms)


def _shard_py_dataset(data: Any, terms: Terms) -> Any:
    if terms.batch_size is not None:
        raise UsageError(
            f"You gave batch_size={terms.batch_size}, but a PyDataset makes its own batches. Leave "
            "it out, and set the size in the PyDataset."
        )
    length = data.num_batches
    if length is None:
        raise UsageError(
            "The PyDataset never ends: its num_batches is None. Give it a __len__, the number of "
            "batches in an epoch."
        )
    agree(terms, _PY_DATASET, length)
    split = plan(
        length, size=terms.size, remainder=terms.remainder, limit=terms.steps, unit="batches"
    )
    return ShardedPyDataset(data, split, terms)


def _shard_loader(data: Any, terms: Terms) -> Any:
    from farandole.keras import torch_data

    torch_data.check(data, terms)
    agree(terms, _LOADER, len(data.dataset))
    return torch_data.ShardedLoader(data, terms)


def _shard_tf_dataset(data: Any, terms: Terms) -> Any:
    from farandole.keras import tf_data

    tf_data.check(data, terms)
    agree(terms, _TF_DATASET, tf_data.cardinality(data))
    return tf_data.shard_dataset(data, terms)


_MAKERS: dict[str, Callable[[Any, Terms], Any]] = {
    _ARRAYS: _shard_arrays,
    _PY_DATASET: _shard_py_dataset,
    _TF_DATASET: _shard_tf_dataset,
    _LOADER: _shard_loader,
}


def _kind(data: Any) -> str:
    """Return which kind of data this is, without importing what it may be of."""
    if sharded_part(data) is not None:
        raise UsageError(
            "This data was sharded before, or was made from data that was. Give it to fit as it "
            "is; shard() wants the whole data, once."
        )
    if isinstance(data, keras.utils.PyDataset):
        return _PY_DATASET
    if _is_a(data, "DatasetV2", "tensorflow.python."):
        return _TF_DATASET
    if _is_a(data, "DataLoader", "torch.utils.data"):
        return _LOADER
    if is_arrays(data):
        return _ARRAYS
    if hasattr(data, "__next__"):
        raise UsageError(
            f"A {type(data).__name__} cannot be sharded: what it yields has no number and cannot "
            "be read twice. Make a keras.utils.PyDataset of it, or let it yield only this "
            "worker's share, by hvd.rank() and hvd.size(), with the same "
            "fit(steps_per_epoch=...) on every worker."
        )
    raise UsageError(
        f"Data of type {type(data).__name__} cannot be sharded. Give arrays, tuples or dicts of "
        f"arrays, or one of: {_PY_DATASET}, {_TF_DATASET}, {_LOADER}."
    )


def _is_a(data: Any, name: str, module: str) -> bool:
    return any(
        parent.__name__ == name and parent.__module__.startswith(module)
        for parent in type(data).__mro__
    )


class EpochFollower(keras.callbacks.Callback):  # type: ignore[misc]
    """Begins each epoch of the data with fit's own number, so that resuming needs no other word."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._data = data

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Pass the number on, before the first batch is asked for."""
        self._data.set_epoch(epoch)


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
        from farandole.keras.tf_data import batches_of

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

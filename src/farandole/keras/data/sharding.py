"""One helper for all kinds of data that Keras takes: every worker gets its share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras

from farandole.engine import context
from farandole.errors import UsageError
from farandole.keras.data.batches import (
    Prepare,
    PreparedArrays,
    ShardedArrays,
    ShardedPyDataset,
    common_length,
    is_arrays,
    taker_of,
    to_numpy,
)
from farandole.keras.data.split import Terms, agree, check, plan

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
    from farandole.keras.data import tf_dataset

    return next(filter(is_sharded, tf_dataset.parts(data)), None)


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
    from farandole.keras.data import loader

    loader.check(data, terms)
    agree(terms, _LOADER, len(data.dataset))
    return loader.ShardedLoader(data, terms)


def _shard_tf_dataset(data: Any, terms: Terms) -> Any:
    from farandole.keras.data import tf_dataset

    tf_dataset.check(data, terms)
    agree(terms, _TF_DATASET, tf_dataset.cardinality(data))
    return tf_dataset.shard_dataset(data, terms)


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

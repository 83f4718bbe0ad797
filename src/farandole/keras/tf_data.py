"""Sharded tf.data.Datasets. Imported only when one is given.

Every rank reads the same stream and takes every size-th element of it, so that the stream must
come in the same order everywhere: what would mix it differently on each rank is refused. The
share is then shuffled, batched and handed on as lazily as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from farandole.errors import UsageError
from farandole.format import plural
from farandole.keras.split import Epochs, Split, Terms, plan, remark

# What a worker spends on shuffling by default, if elements say how large they are.
_BUFFER_BYTES = 256 << 20
_BUFFER_OF_UNKNOWN = 1000


def shard_dataset(dataset: Any, terms: Terms) -> Any:
    """Return a rank's share of a dataset, in batches; see `farandole.keras.data.shard`."""
    batch, steps = terms.batch_size, terms.steps
    epochs, split = Epochs(terms.initial_epoch), _plan(dataset, terms, steps)
    share, count = _share(dataset, terms)
    if terms.shuffle:
        buffer = _buffer(dataset.element_spec, count) if terms.shuffle is True else terms.shuffle
        result = _shuffled(share, batch, buffer, terms.seed, epochs)
    else:
        result = share if batch is None else share.batch(batch)
    if split is not None:
        steps = split.steps(terms.rank)
    if steps is not None:
        result = result.take(steps)
    result = result.prefetch(tf.data.AUTOTUNE)
    if steps is not None:
        # Keras asks for it, and flat_map has forgotten; too few elements become an error.
        result = result.apply(tf.data.experimental.assert_cardinality(steps))
    _describe(result, split, steps, terms)
    result.set_epoch = epochs.tell
    return result


def _plan(dataset: Any, terms: Terms, limit: int | None) -> Split | None:
    length = cardinality(dataset)
    if length is None:
        return None
    return plan(
        length,
        size=terms.size,
        batch=terms.batch_size or 1,
        remainder=terms.remainder,
        limit=limit,
        unit=_unit(terms),
    )


def _unit(terms: Terms) -> str:
    return "batches" if terms.batch_size is None else "samples"


def _share(dataset: Any, terms: Terms) -> tuple[Any, int | None]:
    """Return a rank's elements, and how many there are if that is known."""
    # Without the limit of steps: shuffling comes first, or each epoch would see the same few.
    split = _plan(dataset, terms, None)
    if split is not None:
        # Twice is enough: padding gives out fewer elements than there are.
        source = dataset.repeat(2) if split.padded else dataset
        share = source.take(split.used).shard(terms.size, terms.rank)
        return share, split.share(terms.rank)
    if terms.remainder == "keep":
        return dataset.shard(terms.size, terms.rank), None
    return _rounds(dataset, terms.batch_size or 1, terms.rank, terms.size), None


def cardinality(dataset: Any) -> int | None:
    """Return the number of a dataset's elements, None where it does not say."""
    known = int(dataset.cardinality())
    return None if known == tf.data.UNKNOWN_CARDINALITY else known


def check(dataset: Any, terms: Terms) -> None:
    """Raise UsageError for what cannot be dealt out, or differently by each rank."""
    if cardinality(dataset) is None and terms.remainder == "pad":
        raise UsageError(
            'remainder="pad" needs to know how many elements the tf.data.Dataset has, and this one '
            'does not say. Use remainder="drop", or let it say so: '
            "dataset.apply(tf.data.experimental.assert_cardinality(n))."
        )
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise UsageError(
            "The tf.data.Dataset never ends. Take .repeat() out: fit goes over the data once per "
            "epoch by itself."
        )
    if dataset.options().deterministic is False:
        raise UsageError(_mixed("its options say deterministic=False", "Leave that out"))
    for part in parts(dataset):
        kind = type(part).__name__
        if kind == "_ShardDataset":
            raise UsageError(
                "The tf.data.Dataset is sharded already, by .shard(). Take that out: "
                "shard() deals out the whole data."
            )
        if kind == "_ShuffleDataset" and not _seeded(part):
            raise UsageError(
                _mixed(
                    "it is shuffled without a seed, by .shuffle() or list_files()",
                    "Take .shuffle() out, for shard() shuffles by itself, or give it a seed; "
                    "say list_files(..., shuffle=False)",
                )
            )
        if getattr(part, "_deterministic", None) == "false":
            raise UsageError(
                _mixed("it has a step with deterministic=False", "Leave deterministic=False out")
            )
    _check_batch(dataset, terms.batch_size)


def _check_batch(dataset: Any, batch: int | None) -> None:
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec)]
    if batch is None and any(shape.rank == 0 for shape in shapes):
        raise UsageError(
            "The tf.data.Dataset has single samples as elements. Give shard() a batch_size, or "
            "call .batch() before."
        )
    batched = all(shape.rank and shape[0] is None for shape in shapes)
    if batch is not None and (batched or _ends_in_batches(dataset)):
        raise UsageError(
            f"You gave batch_size={batch}, but the tf.data.Dataset comes in batches. Leave "
            "batch_size out, or take .batch() out of the dataset."
        )


def _ends_in_batches(dataset: Any) -> bool:
    """Say whether elements come from .batch(), with nothing after it that could change them."""
    keeping = (
        "_PrefetchDataset",
        "_TakeDataset",
        "_SkipDataset",
        "_OptionsDataset",
        "CacheDataset",
    )
    part = dataset
    while type(part).__name__ in keeping:
        (part,) = part._inputs()
    return type(part).__name__ in ("_BatchDataset", "_ParallelBatchDataset")


def _mixed(what: str, remedy: str) -> str:
    return (
        f"The tf.data.Dataset comes in another order on each worker: {what}. Shares would overlap "
        f"and leave samples out. {remedy}."
    )


def _seeded(shuffle: Any) -> bool:
    return bool(int(shuffle._seed) or int(shuffle._seed2))


def parts(dataset: Any) -> Iterator[Any]:
    """Go over a dataset and all that it is made from."""
    yield dataset
    for part in dataset._inputs():
        yield from parts(part)


def _rounds(dataset: Any, batch: int, rank: int, size: int) -> Any:
    """Return a rank's elements of whole rounds, of one step each: the same number on all ranks.

    The end of the stream is not known before it comes, and one round too few on some rank would
    leave the others waiting.
    """

    def share(*parts: Any) -> Any:
        # Windows have a dataset in the place of each tensor.
        window = tf.data.Dataset.zip(parts[0] if len(parts) == 1 else parts)
        return window.shard(size, rank)

    return dataset.window(batch * size, drop_remainder=True).flat_map(share)


def _shuffled(share: Any, batch: int | None, buffer: int, seed: int, epochs: Epochs) -> Any:
    """Return the share in an order of each epoch's own."""

    def begin() -> Any:
        epoch = epochs.current
        epochs.finish()
        # One number for both, that differs between neighbouring seeds and epochs.
        state = np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint32)
        return np.int64(state[0] >> 1)

    def pass_of(drawn: Any) -> Any:
        drawn.set_shape(())
        mixed = share.shuffle(buffer, seed=drawn, reshuffle_each_iteration=False)
        return mixed if batch is None else mixed.batch(batch)

    # The number is asked for when the first element is: Keras makes iterators it never uses.
    numbers = tf.data.Dataset.range(1).map(lambda _: tf.numpy_function(begin, [], tf.int64))
    return numbers.flat_map(pass_of)


def _buffer(spec: Any, count: int | None) -> int:
    """Return how many elements are shuffled at a time: all, if they fit into some memory."""
    sizes = [part.shape.num_elements() for part in tf.nest.flatten(spec)]
    buffer = _BUFFER_OF_UNKNOWN
    if all(size is not None for size in sizes):
        widths = [max(part.dtype.size, 1) for part in tf.nest.flatten(spec)]
        element = sum(size * width for size, width in zip(sizes, widths, strict=True))
        buffer = max(_BUFFER_BYTES // max(element, 1), 16)
    return max(min(buffer, count or buffer), 1)


def _describe(result: Any, split: Split | None, steps: int | None, terms: Terms) -> None:
    """Let a dataset say what was dropped or padded, as other sharded data does."""
    result.split, result.unit, result.steps = split, _unit(terms), steps
    if split is not None:
        result.dropped, result.padded = split.dropped, split.padded
        result.remark = remark(split, result.unit)
        return
    keeps = terms.remainder == "keep" and steps is None
    result.dropped, result.padded = (0 if keeps else None), 0
    result.remark = f"{result.unit} of unknown number over {plural(terms.size, 'worker')}"
    if steps is not None:
        result.remark += f": {plural(steps, 'step')} per epoch, the rest is left out."
    elif keeps:
        result.remark += ": none is left out, and steps may differ by one."
    else:
        most = (terms.batch_size or 1) * terms.size - 1
        result.remark += f": up to {most} at the end are left out in each epoch."


# Numbers and truth values; texts and objects go the way that Keras has for them.
_KINDS = "fiub"


def batches_of(batch: Callable[[int], Any], steps: int, example: Any) -> Any | None:
    """Return a tf.data.Dataset of batches, or None where their types do not allow it.

    `batch` makes that of a step; `example` has the structure, types and shapes of all.
    """
    if isinstance(example, np.ndarray):
        # A dataset's element is (x,) for Keras.
        return batches_of(lambda step: (batch(step),), steps, (example,))
    parts = tf.nest.flatten(example)
    if not all(isinstance(part, np.ndarray) and part.dtype.kind in _KINDS for part in parts):
        return None

    def load(step: Any) -> Any:
        types = [part.dtype for part in parts]
        loaded = tf.numpy_function(lambda s: tf.nest.flatten(batch(int(s))), [step], types)
        for tensor, part in zip(loaded, parts, strict=True):
            tensor.set_shape((None, *part.shape[1:]))
        return tf.nest.pack_sequence_as(example, loaded)

    return tf.data.Dataset.range(steps).map(load).prefetch(tf.data.AUTOTUNE)

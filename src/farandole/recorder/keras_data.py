"""The batches that Keras fetches: how many samples, and how long training waited for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from farandole.recorder.batches import SampleHashes, arrays_of, hash_samples
from farandole.recorder.recorder import Recorder, current, wrap


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch on its way into training."""

    begin_s: float | None
    """When training began to wait for it; None where that is the begin of its step."""
    end_s: float
    samples: int | None
    hashes: tuple[str, ...] = ()
    contents: Any = None
    """For the doctor, if it asks."""


class Feed:
    """Keeps what was fetched until a step ends; what was fetched for something else is dropped."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._aside: list[list[Batch]] = []
        self._hashes = SampleHashes()
        self.dataset_size: int | None = None
        """Samples of an epoch, of all workers together, where that is known."""

    def fetched(self, data: Any, begin_s: float | None, end_s: float) -> None:
        """Take note of a batch; called by whichever thread fetches."""
        arrays = arrays_of(data)
        samples = _samples(arrays)
        hashes: tuple[str, ...] = ()
        if self._hashes.left and samples:
            hashes = tuple(hash_samples(arrays, samples))
        recorder = current()
        log = None if recorder is None else recorder.inputs
        self._batches.append(
            Batch(
                begin_s=begin_s,
                end_s=end_s,
                samples=samples,
                hashes=hashes,
                contents=None if log is None else log.keras_fetched(arrays),
            )
        )

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
        evaluated = self._batches
        if self._aside:
            self._batches = self._aside.pop()
        _tell_inputs(current(), evaluated, training=False)

    def take(self, recorder: Recorder) -> list[Batch]:
        """Return the batches that training has had since the last call."""
        batches, self._batches = self._batches, []
        _tell_inputs(recorder, batches, training=True)
        if self._hashes.left and batches:
            self._hashes.keep([batch.hashes for batch in batches], recorder)
        return batches


def _tell_inputs(recorder: Recorder | None, batches: list[Batch], *, training: bool) -> None:
    if recorder is not None and recorder.inputs is not None:
        for batch in batches:
            if batch.contents is not None:
                recorder.inputs.keras_has(batch.contents, training=training)


def _samples(arrays: list[Any]) -> int | None:
    # As Keras counts: by the first input.
    return next((int(array.shape[0]) for array in arrays if len(array.shape)), None)


def follow_torch(iterator: Any, feed: Feed, loaders: Any) -> None:
    """Follow TorchEpochIterator."""
    clock = time.monotonic

    @wrap(iterator, "__next__")
    def fetch(original: Any, epoch: Any) -> Any:
        if current() is None:
            return original(epoch)
        begin_s = clock()
        # What a loader inside of Keras gives is told here.
        loaders.silent = True
        try:
            found = original(epoch)
        finally:
            loaders.silent = False
        end_s = clock()
        feed.dataset_size = _size(epoch)
        for batch in found[2]:
            feed.fetched(batch, begin_s, end_s)
            begin_s = end_s
        return found


def follow_jax(iterator: Any, feed: Feed) -> None:
    """Follow JAXEpochIterator."""

    @wrap(iterator, "_get_iterator")
    def get_iterator(original: Any, epoch: Any) -> Any:
        found = original(epoch)
        return found if current() is None else _Timed(found, feed, _size(epoch))


class _Timed:
    """An iterator that tells of each batch."""

    def __init__(self, batches: Any, feed: Feed, size: int | None) -> None:
        self._next: Callable[[], Any] = iter(batches).__next__
        self._feed, self._size = feed, size

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        begin_s = time.monotonic()
        batch = self._next()
        self._feed.dataset_size = self._size
        self._feed.fetched(batch, begin_s, time.monotonic())
        return batch


def follow_tensorflow(iterator: Any, feed: Feed) -> None:
    """Follow TFEpochIterator."""
    import tensorflow as tf

    @wrap(iterator, "__init__")
    def begin(original: Any, epoch: Any, *args: Any, **kwargs: Any) -> None:
        original(epoch, *args, **kwargs)
        # Strategies of TensorFlow's own fetch ahead and on several devices.
        if current() is not None and isinstance(epoch._distributed_dataset, tf.data.Dataset):
            size = _size(epoch)
            if size is not None:
                feed.dataset_size = size
            epoch._distributed_dataset = _with_tap(tf, epoch._distributed_dataset, feed)


def _with_tap(tf: Any, dataset: Any, feed: Feed) -> Any:
    """Return a data set that tells of each batch when it is asked for."""
    specs = tf.nest.flatten(dataset.element_spec)
    dense = [at for at, spec in enumerate(specs) if isinstance(spec, tf.TensorSpec)]
    if not dense:
        return dataset

    def tell(*arrays: Any) -> None:
        feed.fetched(arrays, None, time.monotonic())

    def tap(*batch: Any) -> Any:
        flat = tf.nest.flatten(batch)
        tf.numpy_function(tell, [flat[at] for at in dense], [])
        # tf.data hands a tuple over as several arguments.
        return batch if type(dataset.element_spec) is tuple else batch[0]

    # TensorFlow fetches ahead at the end of a data set. Here that must be before the tap, which
    # else would tell of batches too early.
    if _fetches_ahead(dataset):
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return _mapped(dataset, tap).with_options(options)


def _mapped(dataset: Any, tap: Callable[..., Any]) -> Any:
    """Return a data set with one more stage, run by the very thread that asks for a batch."""
    try:
        from tensorflow.python.data.ops.map_op import _MapDataset

        # Through another thread, as by `map`, a batch takes a tenth of a millisecond longer.
        return _MapDataset(dataset, tap, use_inter_op_parallelism=False, preserve_cardinality=True)
    except (ImportError, TypeError):
        return dataset.map(tap)


def _fetches_ahead(dataset: Any) -> bool:
    """Say whether TensorFlow would have this data set fetch ahead by itself."""
    options = dataset.options()
    settings = (
        options.autotune.enabled,
        options.experimental_optimization.apply_default_optimizations,
        options.experimental_optimization.inject_prefetch,
    )
    last = dataset
    while type(last).__name__ == "_OptionsDataset":
        last = last._input_dataset
    return False not in settings and "Prefetch" not in type(last).__name__


def _size(iterator: Any) -> int | None:
    """Return how many samples an epoch of all workers has; None where that is not known."""
    recorder, adapter = current(), iterator.data_adapter
    sharded = getattr(getattr(adapter, "py_dataset", None), "split", None)
    if sharded is not None and getattr(adapter.py_dataset, "unit", None) == "samples":
        return int(sharded.length)
    # Arrays as a program gives them to fit: each worker goes over its own.
    size = getattr(adapter, "_num_samples", None)
    return size * recorder.size if isinstance(size, int) and recorder is not None else None

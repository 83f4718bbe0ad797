"""Batches: what DataLoaders give to training, backward passes, and samples seen by models.

A script without a DataLoader may divide its gradient accumulation by the number of workers: then a
step of two workers has half the passes of one. Passes are counted in every script; samples only
where no DataLoader and no `farandole.record(samples=...)` has told them by the end of the first
step. Modules that hold the optimizers' parameters are looked for then, and calls of their classes
are followed: nothing is put into the modules themselves, which scripts copy, pickle and export.

Batches fetched with gradients disabled are validation. A pass over a loader in which no update was
made is not training either, whatever its mode: what it gave is dropped at its end.
"""

from __future__ import annotations

import gc
import hashlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from farandole.recorder.recorder import Recorder, current, wrap

_LOOKS = (0, 3)
"""Steps after which modules are looked for, if nobody has told any samples yet."""


class Passes:
    """Follows the passes of one worker."""

    def __init__(self, torch: Any) -> None:
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        self._graph_task: Callable[[], int] = torch._C._current_graph_task_id
        self._module: Any = torch.nn.Module
        self._followed: dict[int, weakref.ref[Any]] = {}
        self._kinds: set[type] = set()
        self._inside = False
        """Whether a call of a followed module is under way."""
        self._called: dict[int, int] = {}
        """Samples by module, of the calls since the last backward pass."""
        self._passes = 0
        self._told = False

    def backward(self) -> None:
        """Take note of a backward pass; not of those within another, as checkpointing makes."""
        recorder = current()
        if recorder is not None and self._graph_task() == -1:
            self._passes += 1
            self._tell(recorder)

    def step_ends(self, recorder: Recorder, parameters: Callable[[], set[int]]) -> None:
        """Take note of the end of a step, before it is told; the optimizers hold `parameters`."""
        if self._called and not self._passes:
            self._tell(recorder)  # gradients by other means, such as torch.autograd.grad
        self._called.clear()
        self._passes = 0
        wanted = recorder.inputs is not None and recorder.inputs.wants_calls
        if recorder.steps in _LOOKS and (wanted or not recorder.knows_samples):
            self.follow(parameters())

    def follow(self, parameters: set[int]) -> None:
        """Count the samples of modules that hold these parameters, from their next call on."""
        kind = self._module
        modules = [found for found in gc.get_objects() if issubclass(type(found), kind)]
        inner = {id(child) for module in modules for child in _children(module)}
        for top in modules:
            if id(top) not in inner:
                for module in _chain(top, parameters):
                    self._followed[id(module)] = weakref.ref(module)
                    self._follow_kind(type(module))

    def _tell(self, recorder: Recorder) -> None:
        # An encoder and a decoder are called with the same samples; a module that is called
        # several times has several.
        samples = max(self._called.values(), default=None)
        self._called.clear()
        recorder.backward(samples)
        if samples and not self._told:
            self._told = True
            recorder.assume(batch_seen=samples)

    def _follow_kind(self, kind: Any) -> None:
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        own = kind.__dict__.get("__call__")
        is_compiling = self._is_compiling

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 (takes its place)
            counts = not is_compiling() and self._counts(module)
            if counts:
                self._inside = True
                samples = first_length((args, kwargs))
                if samples is not None:
                    self._called[id(module)] = self._called.get(id(module), 0) + samples
                self._tell_inputs((args, kwargs), training=True)
            elif not is_compiling() and self._evaluates(module):
                self._tell_inputs((args, kwargs), training=False)
            try:
                if own is not None:
                    return own(module, *args, **kwargs)
                return super(kind, module).__call__(*args, **kwargs)  # type: ignore[misc]
            finally:
                if counts:
                    self._inside = False

        kind.__call__ = __call__

    def _tell_inputs(self, arguments: Any, *, training: bool) -> None:
        recorder = current()
        if recorder is not None and recorder.inputs is not None:
            recorder.inputs.called(arguments, training=training)

    def _evaluates(self, module: Any) -> bool:
        followed = self._followed.get(id(module))
        return followed is not None and not self._inside and not self._grad_enabled()

    def _counts(self, module: Any) -> bool:
        followed = self._followed.get(id(module))
        return (
            followed is not None
            and not self._inside
            and module.training
            and self._grad_enabled()
            and followed() is module
            and self._graph_task() == -1  # what checkpointing computes anew
        )


def follow_backward(torch: Any, passes: Passes) -> None:
    """Follow all backward passes of torch."""
    is_compiling = torch.compiler.is_compiling

    @wrap(torch.Tensor, "backward")
    def backward(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            passes.backward()
        return original(tensor, *args, **kwargs)


def _chain(module: Any, parameters: set[int]) -> Iterator[Any]:
    """Yield a module that holds some of these, then the child with half of them or more, ...

    A wrapper is not always what a script calls. What is inside of a compiled module is no call.
    """
    held = _held(module, parameters)
    while held:
        yield module
        if "_orig_mod" in module._modules:
            return
        counts = [(_held(child, parameters), child) for child in _children(module)]
        most, child = max(counts, key=lambda pair: pair[0], default=(0, None))
        if 2 * most < held:
            return
        module, held = child, most


def _held(module: Any, parameters: set[int]) -> int:
    return len({id(p) for p in module.parameters()} & parameters)


def _children(module: Any) -> list[Any]:
    # A module whose __init__ has not run has none.
    return [child for child in module.__dict__.get("_modules", {}).values() if child is not None]


# Only the first batches: they lie within what a study takes for warm-up.
BATCHES = 4
MOST_SAMPLES = 4096
MOST_S = 0.002
_MOST_ARRAYS = 16


def arrays_of(batch: Any) -> list[Any]:
    """Return the first arrays and tensors of a batch, in their order."""
    found: list[Any] = []
    for array in _walk(batch, 0):
        found.append(array)
        if len(found) == _MOST_ARRAYS:
            break
    return found


def first_length(item: Any) -> int | None:
    """Return the first dimension of the first array that has one; None where there is none."""
    for array in _walk(item, 0):
        if len(array.shape):
            return int(array.shape[0])
    return None


def full_batch(batch: Any, batch_size: int | None) -> int | None:
    """Return the size of a batch that is plainly full; None if it takes a closer look."""
    first = batch[0] if batch.__class__ in (list, tuple) and batch else batch
    shape = getattr(first, "shape", None)
    return batch_size if batch_size is not None and shape and shape[0] == batch_size else None


def count_samples(batch: Any, arrays: Sequence[Any], batch_size: int | None) -> int | None:
    """Return how many samples a batch has, or None if that cannot be told.

    Args:
        batch: as the loader gave it.
        arrays: what `arrays_of` found in it.
        batch_size: what the loader was asked for; the last batch may be smaller.
    """
    lengths = [int(array.shape[0]) for array in arrays if len(array.shape)]
    if batch_size is not None and batch_size in lengths:
        return batch_size
    fits = [length for length in lengths if batch_size is None or length <= batch_size]
    if fits and len(set(lengths)) == 1:
        return fits[0]
    # Samples of different shapes stay in lists, one per field: images, targets.
    if isinstance(batch, list | tuple):
        listed = [len(item) for item in batch if isinstance(item, list | tuple)]
        if listed and len(set(listed)) == 1:
            return listed[0]
    return lengths[0] if lengths else None


class SampleHashes:
    """Fingerprints of the samples of the first batches, which tell whether ranks have the same."""

    def __init__(self) -> None:
        self.left = BATCHES
        """Batches that are still to be hashed."""
        self._kept: list[str] = []

    def keep(self, batches: Sequence[Sequence[str]], recorder: Recorder) -> None:
        """Keep those of batches that training has had; tell of them when there are enough."""
        if self.left == BATCHES:
            recorder.add_ending(lambda: self._tell(recorder))
        for hashes in batches[: self.left]:
            self._kept += hashes[: MOST_SAMPLES - len(self._kept)]
        self.left = max(0, self.left - len(batches))
        if not self.left:
            self._tell(recorder)

    def _tell(self, recorder: Recorder) -> None:
        if self._kept:
            recorder.setup(sample_hashes=self._kept)


def hash_samples(
    arrays: Sequence[Any],
    samples: int,
    *,
    most: int = MOST_SAMPLES,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Return a fingerprint of each sample, of as many as there is time for."""
    rows = [_rows(array) for array in arrays if len(array.shape) and array.shape[0] == samples]
    views = [view for view in rows if view is not None]
    # Labels alone would make strangers look alike.
    if not views or sum(view.shape[1] for view in views) < 8:
        return []
    deadline_s = clock() + MOST_S
    found = []
    for sample in range(min(samples, most)):
        digest = hashlib.blake2b(digest_size=8)
        for view in views:
            digest.update(view[sample])
        found.append(digest.hexdigest())
        if clock() > deadline_s:
            break
    return found


def _rows(array: Any) -> Any:
    """Return an array's samples as rows of bytes, without a copy; None where that cannot be."""
    import numpy as np

    try:
        plain = np.ascontiguousarray(array.numpy() if hasattr(array, "numpy") else array)
        return plain.reshape(len(plain), -1).view(np.uint8)
    except (RuntimeError, TypeError, ValueError):
        return None  # on a device, with a gradient, or of a type that NumPy does not know


def _walk(item: Any, depth: int) -> Iterator[Any]:
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        yield item
    elif depth < 4:
        if isinstance(item, Mapping):
            item = tuple(item.values())
        if isinstance(item, list | tuple):
            for part in item:
                yield from _walk(part, depth + 1)


_PASS = "_farandole_pass"


class _Pass:
    """One pass over a loader, and what it gave since the last step."""

    def __init__(self, begin_s: float, iterator: Any) -> None:
        self.begin_s = begin_s
        self.dataset = id(iterator._dataset)
        self.steps = 0
        self.ended = False
        self.last_step_s = begin_s
        self.waits: list[tuple[float, float, int | None]] = []
        self.hashes: list[list[str]] = []
        self.dataset_size = _length(iterator._dataset)
        self.num_batches = _length(iterator)
        self.fetched = 0
        self.batch_size = getattr(iterator._index_sampler, "batch_size", None)


class Loaders:
    """Follows the loaders of one worker."""

    def __init__(self) -> None:
        self._pending: list[_Pass] = []
        self._hashes = SampleHashes()
        self._first = True
        self._training: _Pass | None = None
        """The pass that training is in, until it ends."""
        self.silent = False
        """Whether somebody else tells of what loaders give now."""

    def fetched(
        self, iterator: Any, batch: Any, begin_s: float, end_s: float, recorder: Recorder
    ) -> None:
        """Take note of a batch."""
        one = iterator.__dict__.get(_PASS)
        if one is None:
            one = iterator.__dict__[_PASS] = _Pass(begin_s, iterator)
            self._abandon(one, recorder)
        if not one.waits:
            self._pending.append(one)
        samples = None if self._hashes.left else full_batch(batch, one.batch_size)
        if samples is None:
            arrays = arrays_of(batch)
            samples = count_samples(batch, arrays, one.batch_size)
            if self._hashes.left and samples:
                one.hashes.append(hash_samples(arrays, samples))
        one.waits.append((begin_s, end_s, samples))
        one.fetched += 1

    def ended(self, iterator: Any, end_s: float, recorder: Recorder) -> None:
        """Take note of the end of a pass."""
        one = iterator.__dict__.pop(_PASS, None)
        if one is None:
            return
        one.ended = True
        if one.steps:
            self._training = None
            recorder.epoch(one.begin_s, end_s)
        elif one in self._pending:
            self._pending.remove(one)

    def settle(self, recorder: Recorder) -> bool:
        """Count what was fetched for the step that now ends; return whether there was anything."""
        if not self._pending:
            return False
        for one in self._pending:
            if self._first:
                self._first = False
                recorder.setup(dataset_size=one.dataset_size, batch_seen=one.waits[0][2])
                recorder.add_ending(lambda: self._finish(recorder))
            for begin_s, end_s, samples in one.waits:
                recorder.data_waited(begin_s, end_s, samples)
            if self._hashes.left and one.hashes:
                self._hashes.keep(one.hashes, recorder)
                one.hashes.clear()
            one.waits.clear()
            one.steps += 1
            one.last_step_s = time.monotonic()
            if not one.ended:  # some libraries fetch one batch ahead
                self._training = one
        self._pending.clear()
        return True

    def _abandon(self, new: _Pass, recorder: Recorder) -> None:
        """Take note of a pass that was left before its end, if this one begins in its place."""
        old = self._training
        # Scripts that make an iterator for each batch do not make an epoch of it.
        if old is not None and old.dataset == new.dataset and old.steps > 1:
            self._training = None
            recorder.epoch(old.begin_s, old.last_step_s)

    def _finish(self, recorder: Recorder) -> None:
        last = self._training
        # Lightning knows how many batches there are, and does not ask for one more.
        if last is not None and last.fetched == last.num_batches:
            recorder.epoch(last.begin_s, last.last_step_s)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def follow_loaders(dataloader: Any, loaders: Loaders) -> None:
    """Follow all DataLoaders of this module, torch.utils.data.dataloader."""
    import torch

    clock = time.monotonic

    @wrap(dataloader._BaseDataLoaderIter, "__next__")
    def fetch(original: Any, iterator: Any) -> Any:
        recorder = current() if torch.is_grad_enabled() and not loaders.silent else None
        if recorder is None:
            return original(iterator)
        begin_s = clock()
        try:
            batch = original(iterator)
        except StopIteration:
            loaders.ended(iterator, clock(), recorder)
            raise
        loaders.fetched(iterator, batch, begin_s, clock(), recorder)
        return batch

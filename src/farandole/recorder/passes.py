"""Backward passes of an update, and the samples that the model was called with for them.

A script without a DataLoader may divide its gradient accumulation by the number of workers: then a
step of two workers has half the passes of one. Passes are counted in every script; samples only
where no DataLoader and no `farandole.record(samples=...)` has told them by the end of the first
step. Modules that hold the optimizers' parameters are looked for then, and calls of their classes
are followed: nothing is put into the modules themselves, which scripts copy, pickle and export.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from farandole.recorder.recorder import Recorder, current

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
        """Take note of the end of a step, before it is told.

        Args:
            recorder: of this worker.
            parameters: returns the ids of what the optimizers hold.
        """
        if self._called and not self._passes:
            self._tell(recorder)  # gradients by other means, such as torch.autograd.grad
        self._called.clear()
        self._passes = 0
        if recorder.steps in _LOOKS and not recorder.knows_samples:
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
            try:
                if own is not None:
                    return own(module, *args, **kwargs)
                return super(kind, module).__call__(*args, **kwargs)  # type: ignore[misc]
            finally:
                if counts:
                    self._inside = False

        kind.__call__ = __call__

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


def install(torch: Any, passes: Passes) -> None:
    """Follow all backward passes of torch."""
    backward = torch.Tensor.backward
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(backward)
    def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            passes.backward()
        return backward(tensor, *args, **kwargs)

    torch.Tensor.backward = counted


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

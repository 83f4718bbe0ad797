"""How many samples a batch has, and fingerprints of them: ranks that see the same ones are found.

Batches are nested lists, tuples and dicts of arrays; anything with a shape counts as one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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

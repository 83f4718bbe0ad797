"""How fast batches come when nothing is done with them: passes over what training was fed from.

Only in the copies of a calibration (see apart), and after their last step: whatever a loader can
give only once is needed by nobody then.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

from farandole.recorder.passes import arrays_of, count_samples
from farandole.recorder.recorder import paused

Again = Callable[[], Iterator[Any]]
"""Begins one more pass over the batches."""

_again: Again | None = None
_keras_feeds = False
"""Whether Keras goes over the data: on torch by loaders of its own, each of them good for once."""


def samples_per_s(seconds: float) -> float | None:
    """Load batches for about so long, as training was fed last; None where that cannot be done."""
    global _again
    if _again is None:
        return None
    # What is gone over may have a loader within, which would be taken for the source next time.
    source = _again
    with paused():
        found = rate(source, seconds)
    _again = source
    return found


def rate(
    again: Again, seconds: float, *, clock: Callable[[], float] = time.monotonic
) -> float | None:
    """Return samples per second; None when no batch comes, or one that cannot be counted.

    A pass counts from its first batch on, since starting loader processes is no loading, unless
    that batch is all there is.
    """
    begin_s = clock()
    samples, spent_s, over = 0, 0.0, False
    while not over:
        came = []
        pass_s = clock()
        try:
            for batch in again():
                count = count_samples(batch, arrays_of(batch), None)
                if count is None:
                    return None
                came.append((clock(), count))
                over = clock() - begin_s >= seconds and bool(samples or len(came) > 1)
                if over:
                    break
        except Exception:
            # A source that cannot be gone over once more; what came before counts.
            break
        if not came:
            break
        if len(came) > 1:
            samples += sum(count for _, count in came[1:])
            spent_s += came[-1][0] - came[0][0]
        elif not over:
            samples += came[0][1]
            spent_s += came[0][0] - pass_s
        over = over or clock() - begin_s >= seconds
    return samples / spent_s if samples and spent_s > 0 else None


def follow_torch(dataloader: Any) -> None:
    """Take note of the DataLoader that gave a batch last; of torch.utils.data.dataloader."""
    base: Any = dataloader._BaseDataLoaderIter
    init, fetch = base.__init__, base.__next__

    @functools.wraps(init)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        self._farandole_again = lambda: iter(loader)
        init(self, loader, *args, **kwargs)

    @functools.wraps(fetch)
    def __next__(self: Any) -> Any:  # noqa: N807 (it takes that method's place)
        batch = fetch(self)
        if not _keras_feeds:
            _fed_by(self._farandole_again)
        return batch

    base.__init__, base.__next__ = __init__, __next__


def follow_keras() -> None:
    """Take note of what Keras iterates over; of any backend."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    enumerate_iterator = EpochIterator._enumerate_iterator

    @functools.wraps(enumerate_iterator)
    def _enumerate_iterator(self: Any) -> Iterator[Any]:
        global _keras_feeds
        _keras_feeds = True
        for found in enumerate_iterator(self):
            _fed_by(lambda: iter(self._get_iterator()))
            yield found

    EpochIterator._enumerate_iterator = _enumerate_iterator


def _fed_by(again: Again) -> None:
    global _again
    _again = again

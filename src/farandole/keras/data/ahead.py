"""Make the batches that come next while training is busy with the present one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# One is enough while making a batch takes less than a step; the second evens out what it takes.
_AHEAD = 2

Place = tuple[int, int]
"""Epoch and step."""


class Ahead:
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

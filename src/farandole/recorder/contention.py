"""Contention: copies of a script that each take themselves for the only worker.

They compute one alone while the others wait, then all at once; then they load batches, as fast as
they come, one alone and all at once. So what workers of a host cost each other is told apart from
what they send each other. Nothing of such a launch is used but these figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from farandole.recorder.batches import arrays_of, count_samples
from farandole.recorder.ending import Agreement, Control
from farandole.recorder.recorder import current, paused, wrap

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
        found = loading_rate(source, seconds)
    _again = source
    return found


def loading_rate(
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


def follow_torch_loaders(dataloader: Any) -> None:
    """Take note of the DataLoader that gave a batch last; of torch.utils.data.dataloader."""
    base: Any = dataloader._BaseDataLoaderIter

    @wrap(base, "__init__")
    def begin(original: Any, iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        iterator._farandole_again = lambda: iter(loader)
        original(iterator, loader, *args, **kwargs)

    @wrap(base, "__next__")
    def fetch(original: Any, iterator: Any) -> Any:
        batch = original(iterator)
        if not _keras_feeds:
            _fed_by(iterator._farandole_again)
        return batch


def follow_keras_data() -> None:
    """Take note of what Keras iterates over; of any backend."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    @wrap(EpochIterator, "_enumerate_iterator")
    def enumerate_iterator(original: Any, epoch: Any) -> Iterator[Any]:
        global _keras_feeds
        _keras_feeds = True
        for found in original(epoch):
            _fed_by(lambda: iter(epoch._get_iterator()))
            yield found


def _fed_by(again: Again) -> None:
    global _again
    _again = again


# Steps and seconds that are enough, both of either pair: a few steps, some time where they are
# short, and fewer where they take seconds. The first steps of all are slower.
WARMUP = ((3, 0.5), (1, 3.0))
MEASURED = ((6, 0.7), (2, 5.0))
_LOADING_S = 0.6

# What a copy has reached, in the word by which the others know of it.
_WARM, _ALONE, _TOGETHER, _STOPPED, _LOADED_ALONE, _LOADED = range(1, 7)


class Contention:
    """Takes the place of what ends a launch: asked at the end of each step."""

    def __init__(
        self,
        *,
        copy: int,
        copies: int,
        control: Agreement,
        tell: Callable[..., None] | None = None,
        load: Callable[[float], float | None] = samples_per_s,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin as one of so many copies, of which the first computes alone.

        `tell` keeps figures, by default as a line of the recorder; `load` loads batches for so many
        seconds and returns samples per second.
        """
        self._leads, self._copies, self._control = copy == 0, copies, control
        self._tell, self._load = tell or _tell, load
        self._sleep, self._clock = sleep, clock
        self._phase = "warm-up"
        self._since_s: float | None = None
        self._first: int | None = None

    def step(self, number: int, end_s: float, epochs: int) -> bool:
        """Take note of the end of a step; return whether it was this copy's last."""
        if self._since_s is None:
            self._since_s = end_s
        if self._phase == "warm-up":
            return _enough(WARMUP, number, end_s - self._since_s) and not self._warmed_up()
        if self._phase == "over":
            return self._all_over()
        if self._first is None:
            # A step that began before the others were there is none of these.
            self._first = number if end_s > self._since_s else None
            return False
        if not _enough(MEASURED, number - self._first, end_s - self._since_s):
            return False
        self._tell(**{self._phase: [self._first, number]})
        if self._phase == "alone":
            return not self._begin("together", _ALONE)
        # The others may still be measuring: this one goes on until none is.
        self._phase = "over"
        self._control.publish(_TOGETHER)
        return self._all_over()

    def wait_for_others(self, number: int) -> None:
        """Leave: what others still do needs nobody."""

    def close(self) -> None:
        """Let go of the file."""
        self._control.close()

    def _warmed_up(self) -> bool:
        if not self._reach(_WARM):
            return False
        return self._begin("alone") if self._leads else self._begin("together", _ALONE)

    def _begin(self, phase: str, reached: int | None = None) -> bool:
        """Begin to measure as soon as all are there; return False when one has left."""
        if reached is not None and not self._reach(reached):
            return False
        self._phase, self._since_s, self._first = phase, self._clock(), None
        return True

    def _all_over(self) -> bool:
        """Load batches when nobody computes any more; return whether this copy is to end."""
        others = self._control.steps()
        if len(others) == self._copies:
            if min(others) < _TOGETHER:
                return False
            self._load_batches()
        return True

    def _load_batches(self) -> None:
        if not self._reach(_STOPPED):
            return
        if self._leads:
            self._tell(loaded_alone=self._load(_LOADING_S))
        if self._reach(_LOADED_ALONE):
            self._tell(loaded_together=self._load(_LOADING_S))
            # Who leaves earlier would be missed by those that have not begun.
            self._reach(_LOADED)

    def _reach(self, word: int) -> bool:
        """Wait until all have reached so much; return False when one has left before."""
        self._control.publish(word)
        while True:
            others = self._control.steps()
            if len(others) < self._copies:
                return False
            if min(others) >= word:
                return True
            self._sleep(0.001)


def _enough(either: tuple[tuple[int, float], ...], steps: int, seconds: float) -> bool:
    return any(steps >= least and seconds >= least_s for least, least_s in either)


def make_apart(text: str) -> Contention:
    """Return what leads a copy through its launch, by FARANDOLE_APART's JSON.

    Raises:
        OSError: its file `control` cannot be written to.
    """
    order = json.loads(text)
    copy, copies = int(order["copy"]), int(order["copies"])
    control = Control(order["control"], rank=copy, size=copies)
    return Contention(copy=copy, copies=copies, control=control)


def _tell(**figures: Any) -> None:
    recorder = current()
    assert recorder is not None
    recorder.tell("apart", **figures)
    # A loader that never comes back must not take with it what was measured before.
    recorder.flush()

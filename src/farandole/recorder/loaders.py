"""What DataLoaders give to training: waits, samples, passes.

Batches fetched with gradients disabled are validation. A pass in which no update was made is not
training either, whatever its mode: what it gave is dropped at its end.
"""

from __future__ import annotations

import time
from typing import Any

from farandole.recorder.passes import (
    BATCHES,
    MOST_SAMPLES,
    arrays_of,
    count_samples,
    full_batch,
    hash_samples,
)
from farandole.recorder.recorder import Recorder, current

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
        self._hashes: list[str] = []
        self._batches_to_hash = BATCHES
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
        samples = None if self._batches_to_hash else full_batch(batch, one.batch_size)
        if samples is None:
            arrays = arrays_of(batch)
            samples = count_samples(batch, arrays, one.batch_size)
            if self._batches_to_hash and samples:
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
            if self._batches_to_hash:
                self._keep_hashes(one, recorder)
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

    def _keep_hashes(self, one: _Pass, recorder: Recorder) -> None:
        for hashes in one.hashes[: self._batches_to_hash]:
            self._hashes += hashes[: MOST_SAMPLES - len(self._hashes)]
            self._batches_to_hash -= 1
        one.hashes.clear()
        if not self._batches_to_hash:
            recorder.setup(sample_hashes=self._hashes)

    def _finish(self, recorder: Recorder) -> None:
        last = self._training
        # Lightning knows how many batches there are, and does not ask for one more.
        if last is not None and last.fetched == last.num_batches:
            recorder.epoch(last.begin_s, last.last_step_s)
        if self._hashes:
            recorder.setup(sample_hashes=self._hashes)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def install(dataloader: Any, loaders: Loaders) -> None:
    """Follow all DataLoaders of this module, torch.utils.data.dataloader."""
    import torch

    base: Any = dataloader._BaseDataLoaderIter
    fetch = base.__next__
    clock = time.monotonic

    def __next__(self: Any) -> Any:  # noqa: N807 (it takes that method's place)
        recorder = current() if torch.is_grad_enabled() and not loaders.silent else None
        if recorder is None:
            return fetch(self)
        begin_s = clock()
        try:
            batch = fetch(self)
        except StopIteration:
            loaders.ended(self, clock(), recorder)
            raise
        loaders.fetched(self, batch, begin_s, clock(), recorder)
        return batch

    base.__next__ = __next__

"""How far the workers' gradients scatter: squared norms before and after they are combined.

In a few updates each worker squares its own gradients, bucket by bucket, as soon as a bucket is
full, and then its share of what has become of all of them. Nothing is exchanged for it: whoever
reads the files joins the workers by the number of the update.

Each worker samples the updates whose numbers divide by 10, by 20, by 40, ..., as it can afford. So
it needs nobody's word for it, and what one samples is among what any other with a shorter period
samples, too.
"""

from __future__ import annotations

import itertools
import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from farandole.recorder.recorder import Recorder

if TYPE_CHECKING:
    from farandole.transport.reduction import Reduction

PERIOD = 10
"""Every tenth update is sampled where that is cheap enough."""
MOST_SHARE = 0.0015
"""Of the time of all steps, by its own clock; training loses more, whose data leave the caches."""
_MOST_DOUBLINGS = 12
_ROOM = 1.5
# 128 KB of float32: it stays in a core's own cache, and float32 is exact enough for its sum.
_BLOCK_ELEMENTS = 32_768

NOT_MEASURED = "The gradient noise was not measured"
"""How a note about it begins."""
SPARSE = "The gradient noise is that of dense gradients alone: sparse ones were left out."

Values = Any
"""A flat array, or a flat tensor on a device."""

_numbers = itertools.count()
_scaler: weakref.ref[Any] | None = None


class Schedule:
    """Says how often to sample, by what that has cost; pure: the caller brings the times."""

    def __init__(self) -> None:
        self.period = PERIOD
        """The updates whose numbers divide by this are sampled."""
        self._updates_s: deque[float] = deque(maxlen=9)
        self._costs_s: deque[float] = deque(maxlen=3)
        self._last_s: float | None = None

    def samples(self, update: int) -> bool:
        """Say whether an update, counting from 1, is sampled."""
        return update % self.period == 0

    def ended(self, now_s: float) -> None:
        """Take note of the end of an update."""
        if self._last_s is not None:
            self._updates_s.append(now_s - self._last_s)
        self._last_s = now_s

    def spent(self, seconds: float) -> None:
        """Take note of what sampling an update has cost, and choose the period."""
        self._costs_s.append(seconds)
        if not self._updates_s:
            return
        afforded_s = MOST_SHARE * PERIOD * max(median(self._updates_s), 1e-6)
        dearer = median(self._costs_s) / afforded_s
        # Back only with room to spare: what one rank samples and another does not is lost.
        back = min(self.period, _period(_ROOM * dearer))
        self.period = max(_period(dearer), back)


def _period(dearer: float) -> int:
    """Return the period of what is so many times dearer than every tenth update affords."""
    return PERIOD << min(math.ceil(math.log2(max(dearer, 1.0))), _MOST_DOUBLINGS)


class NoiseWriter:
    """Writes what was sampled of one optimizer's gradients."""

    def __init__(self, factor: float = 1.0) -> None:
        """Begin; all ranks do so in the same order, which tells several optimizers apart.

        Args:
            factor: what the workers' mean is multiplied by in a combined gradient.
        """
        self._number = next(_numbers)
        self._factor = factor
        self._late: tuple[dict[str, Any], Callable[[], list[float] | None]] | None = None

    def tell(
        self, recorder: Recorder, head: dict[str, Any], before: Sequence[Any], after: Sequence[Any]
    ) -> None:
        """Write squared norms: floats, or tensors that a device will know a little later.

        Args:
            recorder: writes.
            head: `update`, `step` and `bytes`.
            before: of each bucket.
            after: of each bucket, this rank's share.
        """
        self.settle(recorder)
        head = {"optimizer": self._number, **head}
        found = [*before, *after, _loss_scale()]
        if all(isinstance(value, float) for value in found):
            self._write(recorder, head, found)
        else:
            from farandole.recorder.steps import numbers_later

            self._late = head, numbers_later(found)

    def settle(self, recorder: Recorder) -> None:
        """Write what a device knows by now."""
        if self._late is not None:
            head, later = self._late
            found = later()
            if found is not None:
                self._late = None
                self._write(recorder, head, found)

    def _write(self, recorder: Recorder, head: dict[str, Any], found: Sequence[float]) -> None:
        *norms, scale = found
        # A step that a loss scaler leaves out is no measurement.
        if all(map(math.isfinite, norms)):
            count = len(norms) // 2
            before = [value / scale**2 for value in norms[:count]]
            after = [value / (scale * self._factor) ** 2 for value in norms[count:]]
            recorder.tell("noise", **head, before=before, after=after)


class Norms:
    """Samples gradients that Farandole combines in buckets."""

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        factor: float = 1.0,
        why_not: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; all ranks do so in the same order.

        Args:
            rank: mine.
            size: number of ranks.
            factor: see NoiseWriter.
            why_not: why nothing can be told from these gradients; empty if something can.
            clock: for what sampling costs.
        """
        self._rank, self._size, self._clock = rank, size, clock
        self._why_not = why_not
        self._telling, self._schedule = NoiseWriter(factor), Schedule()
        self._update = 0
        self._steps, self._since = -1, 0
        self._before: dict[int, Any] = {}
        self._spent_s = 0.0
        self.due = False
        """Whether the update that is under way is sampled, if anything is recorded."""

    def before(self, bucket: int, pieces: Iterable[Values], dtype: str) -> None:
        """Square this worker's own gradients, in an update that is sampled.

        Args:
            bucket: theirs, counting from 0.
            pieces: flat arrays, which make up the bucket.
            dtype: their type; an array of bits where it is float16 or bfloat16.
        """
        began_s = self._clock()
        first, *rest = (squared_norm(piece, dtype) for piece in pieces)
        self._before[bucket] = sum(rest, first)
        self._spent_s += self._clock() - began_s

    def ended(
        self, recorder: Recorder | None, results: Sequence[Values] = (), dtypes: Sequence[str] = ()
    ) -> None:
        """Take note of the end of an update; square my share of its results, if it is sampled.

        Args:
            recorder: None while nothing is recorded.
            results: the combined buckets; none if they are not what was sampled before.
            dtypes: of each.
        """
        if self._size == 1:
            return
        self._update += 1
        if recorder is not None:
            if self._why_not:
                recorder.note(f"{NOT_MEASURED}: {self._why_not}.")
            self._telling.settle(recorder)
            step = self._step(recorder)
            if self.due and results and len(self._before) == len(results):
                self._measure(recorder, step, results, dtypes)
        self._before.clear()
        self._spent_s = 0.0
        self._schedule.ended(self._clock())
        self.due = not self._why_not and self._schedule.samples(self._update + 1)

    def _step(self, recorder: Recorder) -> int:
        """Return which step this update is part of: several may end at once, later."""
        if recorder.steps != self._steps:
            self._steps, self._since = recorder.steps, 0
        self._since += 1
        return recorder.steps + self._since - 1

    def _measure(
        self, recorder: Recorder, step: int, results: Sequence[Values], dtypes: Sequence[str]
    ) -> None:
        began_s = self._clock()
        # All have the same results: each squares another part of them.
        ends = [
            (len(values) * self._rank // self._size, len(values) * (self._rank + 1) // self._size)
            for values in results
        ]
        after = [
            squared_norm(values[begin:end], dtype)
            for values, dtype, (begin, end) in zip(results, dtypes, ends, strict=True)
        ]
        nbytes = [int(values.nbytes) for values in results]
        head = {"update": self._update, "step": step, "bytes": nbytes}
        before = [self._before[bucket] for bucket in range(len(after))]
        self._telling.tell(recorder, head, before, after)
        self._schedule.spent(self._spent_s + self._clock() - began_s)


class PartNorms:
    """Samples the batches that one worker sums into an update: they scatter as workers' do."""

    def __init__(
        self, parts: int, *, averaged: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin.

        Args:
            parts: batches in an update.
            averaged: whether an update has their mean; else it has their sum.
            clock: for what sampling costs.
        """
        self._parts, self._clock = parts, clock
        self._telling, self._schedule = NoiseWriter(1.0 if averaged else parts), Schedule()
        self._update = 0
        self._before: list[float] = []
        self._spent_s = 0.0
        self.due = False
        """Whether the update that is under way is sampled, if anything is recorded."""

    def part(self, gradients: Iterable[Any]) -> None:
        """Square the gradients of a batch, in an update that is sampled; None counts as zero."""
        began_s = self._clock()
        self._before.append(_squared_norms(gradients))
        self._spent_s += self._clock() - began_s

    def ended(self, recorder: Recorder | None, results: Sequence[Any]) -> None:
        """Take note of an update; square what its batches came to, if it is sampled."""
        self._update += 1
        if recorder is not None and self.due and len(self._before) == self._parts:
            began_s = self._clock()
            head = {
                "update": self._update,
                "step": recorder.steps,
                "parts": self._parts,
                "bytes": [sum(int(each.nbytes) for each in results if each is not None)],
            }
            before = [sum(self._before) / self._parts]
            self._telling.tell(recorder, head, before, [_squared_norms(results)])
            self._schedule.spent(self._spent_s + self._clock() - began_s)
        self._before.clear()
        self._spent_s = 0.0
        self._schedule.ended(self._clock())
        self.due = self._schedule.samples(self._update + 1)


def norms_of(
    how: Reduction, rank: int, size: int, *, scaled: bool = False, sharded: bool = False
) -> Norms:
    """Return what samples gradients that are combined like this.

    Args:
        how: the reduction.
        rank: mine.
        size: number of ranks.
        scaled: whether something unknown scales the gradients.
        sharded: whether no rank has the combined gradients as a whole.
    """
    why_not = "updates are sharded" if sharded else ""
    if scaled:
        why_not = "Keras's LossScaleOptimizer scales the gradients"
    elif how.op not in ("average", "sum"):
        why_not = f"op={how.op} of the workers' gradients is no mean of them"
    factor = how.prescale * how.postscale * (size if how.op == "sum" else 1)
    return Norms(rank=rank, size=size, factor=factor, why_not=why_not)


def squared_norm(values: Values, dtype: str) -> Any:
    """Return the sum of squares: a float, or a tensor of one element for what is on a device.

    Args:
        values: a flat array, of bits where the type is float16 or bfloat16; or a flat tensor.
        dtype: the type's name.
    """
    import numpy as np

    if not isinstance(values, np.ndarray):
        import torch

        return torch.linalg.vector_norm(values, dtype=torch.float32).square()
    from farandole.transport.reduction import widen

    half = dtype in ("float16", "bfloat16")
    total = 0.0
    for start in range(0, len(values), _BLOCK_ELEMENTS):
        block = values[start : start + _BLOCK_ELEMENTS]
        if half:
            block = widen(block, dtype)
        total += float(np.vdot(block, block).real)
    return total


def _squared_norms(gradients: Iterable[Any]) -> float:
    """Return the sum of squares of arrays of any shape and type."""
    import numpy as np

    total = 0.0
    for gradient in gradients:
        if gradient is not None:
            half = gradient.dtype.itemsize == 2
            flat = np.ascontiguousarray(gradient, np.float32 if half else None).reshape(-1)
            total += squared_norm(flat, "")
    return total


def scaled_by(scaler: Any) -> None:
    """Take note of a GradScaler that scales a loss, and by that the gradients."""
    global _scaler
    _scaler = weakref.ref(scaler)


def _loss_scale() -> Any:
    """Return by what gradients are scaled now: a float, or a tensor on a device."""
    # One that is switched off has none.
    scale = None if _scaler is None else getattr(_scaler(), "_scale", None)
    if scale is None:
        return 1.0
    return scale if scale.is_cuda else float(scale)

"""Where each gradient lies in the buckets, and how far the current step has filled them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch

from farandole.engine import marks
from farandole.engine.buckets import FULL, REPLAN, BucketSet, open_buckets
from farandole.engine.engine import Engine
from farandole.engine.handle import Handle
from farandole.engine.plan import Plan
from farandole.recorder.noise import Norms
from farandole.recorder.recorder import current
from farandole.torch.tensors import view_of
from farandole.transport.reduction import Array, Reduction

_GRADIENT = attrgetter("grad")


class Layout:
    """One plan with its memory, and where the current step stands in it."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        plan: Plan,
        parameters: Sequence[torch.nn.Parameter],
        how: Reduction,
        norms: Norms,
    ) -> None:
        self.plan = plan
        self._how, self._norms = how, norms
        bits = max(-(-len(members) // 8) for members in plan.members)
        self._note_bytes = note_bytes = max(bits, marks.NOTE_BYTES)
        device = parameters[next(iter(plan.places))].device
        self.buckets: BucketSet = open_buckets(
            engine, name, plan.shapes, note_bytes, device=device.type
        )
        flats = [
            view_of(array, dtype)
            for array, (_, dtype) in zip(self.buckets.arrays, plan.shapes, strict=True)
        ]
        self._views = {
            index: _view_like(flats[place.bucket], place.offset, parameters[index])
            for index, place in plan.places.items()
        }
        self._placed = [parameters[index] for index in self._views]
        self._all_present = [_bits(range(len(each)), note_bytes) for each in plan.members]
        self._all_full = [FULL] * engine.size
        self._in_place = False
        self._step = 1
        self._handles: list[Handle | None] = [None] * len(plan.members)
        self._came = [0] * len(parameters)
        """In which step the gradient of each parameter has last come."""
        self._arrived = [0] * len(plan.members)
        """How many of this step's gradients are in each bucket."""
        self._last = len(plan.members) - 1
        self.submitted_s = [0.0] * len(plan.members)
        """When each bucket went, in the current step or the one that has just ended."""
        self._busy_s = 0.0
        self.sitting_out = False
        """Whether this rank has joined and is in a step of the others."""
        self.nbytes = sum(view.nbytes for view in self._views.values())
        """Size of all gradients, without what fills the buckets up."""

    def take(self, index: int, parameter: torch.Tensor) -> bool:
        """Put a gradient into its bucket; return whether that filled and submitted it."""
        place = self.plan.places.get(index)
        gradient = parameter.grad
        if place is None or gradient is None or gradient.is_sparse:
            return False
        view = self._views[index]
        if gradient is not view:
            _write(view, gradient)
            if view.dtype == gradient.dtype:
                parameter.grad = view
        bucket = place.bucket
        if self._came[index] != self._step:
            self._came[index] = self._step
            self._arrived[bucket] += 1
        if self._arrived[bucket] < len(self.plan.members[bucket]) or bucket == self._last:
            return False
        self._submit(bucket, self._all_present[bucket], FULL)
        return True

    def forget(self) -> bool:
        """Begin this step anew, unless a bucket is on its way; return whether that was done."""
        if any(handle is not None for handle in self._handles):
            return False
        self._came = [0] * len(self._came)
        self._arrived = [0] * len(self._arrived)
        return True

    def submitted(self, index: int) -> bool:
        """Say whether a parameter's bucket is on its way."""
        place = self.plan.places.get(index)
        return place is not None and self._handles[place.bucket] is not None

    def in_place(self) -> bool:
        """Say whether every gradient of the plan lies in its bucket, as mostly it does.

        The loop that a step cannot do without: everything else is done where this says no.
        """
        return all(map(is_, map(_GRADIENT, self._placed), self._views.values()))

    def submit_in_place(self) -> None:
        """Submit the buckets that are not on their way, all gradients being `in_place`."""
        self._in_place = True
        for bucket, handle in enumerate(self._handles):
            if handle is None:
                self._submit(bucket, self._all_present[bucket], FULL)

    def submit_rest(
        self, parameters: Sequence[torch.nn.Parameter], flags: int, sparse: set[int]
    ) -> None:
        """Submit the buckets that were not full; missing gradients count as zero.

        Those of `sparse` take part, but do not count as present: unless a peer has a dense one
        they stay as they are.
        """
        for bucket, handle in enumerate(self._handles):
            if handle is not None:
                continue
            present = []
            for position, index in enumerate(self.plan.members[bucket]):
                gradient, view = parameters[index].grad, self._views[index]
                if gradient is None:
                    view.zero_()
                    continue
                if gradient is not view:
                    _write(view, gradient)
                    if index not in sparse and view.dtype == gradient.dtype:
                        parameters[index].grad = view
                if index not in sparse:
                    present.append(position)
            asked = flags if bucket == self._last else 0
            if len(present) == len(self.plan.members[bucket]):
                self._submit(bucket, self._all_present[bucket], FULL | asked)
            else:
                self._submit(bucket, _bits(present, self._note_bytes), asked)

    def moved_s(self) -> float | None:
        """Return how long this rank has moved gradients since the last call, if it does so."""
        busy_s = self.buckets.busy_s
        if busy_s is None:
            return None
        before_s, self._busy_s = self._busy_s, busy_s
        return busy_s - before_s

    def mark(self, mark: marks.Mark, engine: Engine) -> None:
        """Say where this rank stands between two steps, in the place of the first bucket."""
        note = mark.encode(self._note_bytes)
        handle = self.buckets.submit(0, self._step, self._how, marks.MARK, note)
        self._count_step()
        marks.check(marks.marks_of(engine.wait(handle)) or ())  # type: ignore[arg-type]

    def finish(
        self, parameters: Sequence[torch.nn.Parameter], engine: Engine
    ) -> tuple[int, ...] | None:
        """Wait for all buckets and point gradients at the results.

        Returns:
            None, or the members of the last bucket if a rank wants another plan: these were not
            reduced.

        Raises:
            StepsDifferError: a rank is not in a step, but at the end of its epoch.
        """
        left_out = None
        for bucket, handle in enumerate(self._handles):
            assert handle is not None
            answers: list[tuple[int, Any]] = engine.wait(handle)  # type: ignore[assignment]
            if self._in_place and [flags for flags, _ in answers] == self._all_full:
                continue
            if any(flags & REPLAN for flags, _ in answers):
                if (said := marks.marks_of(answers)) is not None:
                    marks.check(said)
                left_out = self.plan.members[bucket]
            elif all(flags & FULL for flags, _ in answers):
                for index in self.plan.members[bucket]:
                    self._point(parameters[index], index)
            else:
                present = np.unpackbits(np.bitwise_or.reduce([note for _, note in answers]))
                for position, index in enumerate(self.plan.members[bucket]):
                    if present[position]:
                        self._point(parameters[index], index)
        self._begin_step()
        return left_out

    def sit_out(self, engine: Engine) -> bool | None:
        """Bring zeros to a step of the others, if one has begun: this rank has joined.

        To be called again and again.

        Returns:
            None unless a step has just ended; then whether a rank wanted another plan in it.
        """
        if not self.sitting_out:
            if not self.buckets.begun(self._step):
                return None
            self.sitting_out = True
            nothing = np.zeros(self._note_bytes, np.uint8)
            for bucket, handle in enumerate(self._handles):
                if handle is None:
                    self.buckets.arrays[bucket][...] = 0
                    self._handles[bucket] = self.buckets.submit(
                        bucket, self._step, self._how, FULL, nothing
                    )
        handles = [handle for handle in self._handles if handle is not None]
        if not all(handle.check() for handle in handles):
            return None
        answers: list[Any] = [engine.wait(handle) for handle in handles]
        self.sitting_out = False
        self._begin_step()
        return any(flags & REPLAN for said in answers for flags, _ in said)

    def come_back(self) -> None:
        """Leave out a step's number: all ranks have joined."""
        self._count_step()

    def _count_step(self) -> None:
        """Go on to the next number; what has come in so far is found when the rest is submitted."""
        self._step += 1
        self._arrived = [0] * len(self._arrived)

    def _begin_step(self) -> None:
        self._count_step()
        self._in_place = False
        self._handles = [None] * len(self._handles)

    def _point(self, parameter: torch.nn.Parameter, index: int) -> None:
        """Let a parameter have its result; what travelled in another precision is a copy."""
        view = self._views[index]
        # Setting it costs several times what looking at it does, and mostly it is there.
        if parameter.grad is not view:
            parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)

    def _submit(self, bucket: int, note: Array, flags: int) -> None:
        if self._norms.due and current() is not None:
            dtype = self.plan.shapes[bucket][1]
            self._norms.before(bucket, [self.buckets.arrays[bucket]], dtype)
        self.submitted_s[bucket] = time.monotonic()
        self._handles[bucket] = self.buckets.submit(bucket, self._step, self._how, flags, note)


def _bits(positions: Sequence[int], nbytes: int) -> Array:
    bits = np.zeros(nbytes * 8, np.uint8)
    bits[list(positions)] = 1
    return np.packbits(bits)


def _write(view: torch.Tensor, gradient: torch.Tensor) -> None:
    # A gradient has a history of its own after backward(create_graph=True).
    if gradient.requires_grad:
        gradient = gradient.detach()
    view.copy_(gradient.to_dense() if gradient.is_sparse else gradient)


def _view_like(flat: torch.Tensor, offset: int, parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a stretch of a bucket, shaped and laid out in memory like its parameter."""
    stretch = flat[offset : offset + parameter.numel()]
    if parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        return stretch.as_strided(parameter.shape, parameter.stride())
    return stretch.view(parameter.shape)

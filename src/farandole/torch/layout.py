"""Where each gradient lies in the buckets, and how far the current step has filled them."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection, Sequence
from operator import attrgetter, is_

import torch

from farandole.engine.bucket_step import BucketStep, Mark
from farandole.engine.buckets import Plan
from farandole.engine.engine import Engine
from farandole.recorder.noise import Norms
from farandole.recorder.recorder import current
from farandole.torch.operations import view_of
from farandole.transport.reduction import Reduction

_GRADIENT = attrgetter("grad")
_GEOMETRY = (torch.Tensor.data_ptr, torch.Tensor.stride, torch.Tensor.numel)
"""What tells where a tensor lies and how: the three questions that torch answers fastest."""

Faults = dict[int, str]
"""By index of the parameter: what is wrong with its gradient."""
CHANGED_LATE = (
    "was changed after it was sent to the other ranks. Change it in a hook, by register_hook, or "
    "after optimizer.synchronize(), and step inside of optimizer.skip_synchronize(); with Keras "
    "let the optimizer do it, as by its global_clipnorm."
)


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
        *,
        channels_last: Collection[int] = (),
    ) -> None:
        """Allocate; all ranks do so together.

        Args:
            engine: reduces.
            name: of the buckets.
            plan: where each gradient lies; the same on every rank.
            parameters: all of the optimizer's.
            how: the reduction.
            norms: samples the gradients.
            channels_last: parameters whose gradients lie so in memory; the same on every rank.
        """
        self.plan = plan
        self._norms = norms
        self._parameters = parameters
        device = parameters[next(iter(plan.places))].device
        self.step = BucketStep(engine, name, plan, how, device=device.type)
        self.buckets = self.step.buckets
        flats = [
            view_of(array, dtype)
            for array, (_, dtype) in zip(self.buckets.arrays, plan.shapes, strict=True)
        ]
        self._homes = {
            index: view_like(
                flats[place.bucket], place.offset, parameters[index], index in channels_last
            )
            for index, place in plan.places.items()
        }
        """Where each gradient lies. No script gets hold of these tensors."""
        self._views = {index: home.data for index, home in self._homes.items()}
        """What `p.grad` is pointed at. `p.grad.data = x` gives it other memory."""
        self._geometry = [list(map(ask, self._homes.values())) for ask in _GEOMETRY]
        self._starts, self._stops, self._at = zip(
            *sorted((f.data_ptr(), f.data_ptr() + f.nbytes, i) for i, f in enumerate(flats)),
            strict=True,
        )
        self._taken: dict[int, tuple[torch.Tensor, int]] = {}
        """The gradients that have come, with their versions: these count in-place changes."""
        self._placed = [parameters[index] for index in self._views]
        self._in_place = False
        self._came = [0] * len(parameters)
        """In which step the gradient of each parameter has last come."""
        self._arrived = [0] * len(plan.members)
        """How many of this step's gradients are in each bucket."""
        self._last = len(plan.members) - 1
        self.submitted_s = [0.0] * len(plan.members)
        """When each bucket went, in the current step or the one that has just ended."""
        self._busy_s = 0.0
        self.nbytes = sum(view.nbytes for view in self._views.values())
        """Size of all gradients, without what fills the buckets up."""

    def take(self, index: int, parameter: torch.Tensor) -> bool:
        """Put a gradient into its bucket; return whether that filled and submitted it."""
        place = self.plan.places.get(index)
        gradient = parameter.grad
        if place is None or gradient is None or gradient.is_sparse:
            return False
        if gradient is not self._views[index] or self._moved(index):
            if gradient.shape != parameter.shape or self._bucket_of(gradient) is not None:
                # What to do with it can only be told when all have come.
                return False
            self._write(index, gradient)
            gradient = self._aim(index, parameter, gradient)
        self._taken[index] = gradient, gradient._version
        bucket, members = place.bucket, self.plan.members[place.bucket]
        if self._came[index] != self.step.number:
            self._came[index] = self.step.number
            self._arrived[bucket] += 1
        if self._arrived[bucket] < len(members) or bucket == self._last:
            return False
        if not all(map(self._as_taken, members)):
            return False
        self._submit(bucket)
        return True

    def forget(self) -> bool:
        """Begin this step anew, unless a bucket is on its way; return whether that was done."""
        if any(map(self.step.submitted, range(len(self._arrived)))):
            return False
        self._came = [0] * len(self._came)
        self._arrived = [0] * len(self._arrived)
        return True

    def submitted(self, index: int) -> bool:
        """Say whether a parameter's bucket is on its way."""
        place = self.plan.places.get(index)
        return place is not None and self.step.submitted(place.bucket)

    def in_place(self) -> bool:
        """Say whether every gradient of the plan lies in its bucket, as mostly it does.

        The loop that a step cannot do without: everything else is done where this says no.
        """
        views = self._views.values()
        return (
            all(map(is_, map(_GRADIENT, self._placed), views))
            and [list(map(ask, views)) for ask in _GEOMETRY] == self._geometry
            and all(
                taken._version == version
                for bucket, members in enumerate(self.plan.members)
                if self.step.submitted(bucket)
                for taken, version in map(self._taken.__getitem__, members)
            )
        )

    def faults(self) -> Faults:
        """Find gradients that cannot be used, and those that were changed after they were sent.

        What has not been sent may be changed at will: it is taken as it is.
        """
        faults: Faults = {}
        for index, home in self._homes.items():
            gradient = self._parameters[index].grad
            if self.submitted(index):
                if not self._as_taken(index):
                    faults[index] = CHANGED_LATE
            elif gradient is not None:
                among = self._bucket_of(gradient)
                if gradient.shape != home.shape:
                    faults[index] = of_another_shape(gradient, home)
                elif among is not None and self.step.submitted(among):
                    # Set to one that was sent.
                    faults[index] = CHANGED_LATE
        return faults

    def submit_in_place(self) -> None:
        """Submit the buckets that are not on their way, all gradients being `in_place`."""
        self._in_place = True
        for bucket in range(len(self._arrived)):
            if not self.step.submitted(bucket):
                self._submit(bucket)

    def submit_rest(
        self,
        parameters: Sequence[torch.nn.Parameter],
        flags: int,
        sparse: Collection[int],
        faults: Collection[int] = (),
    ) -> None:
        """Submit the buckets that were not full; missing gradients count as zero.

        Those of `sparse` take part, but do not count as present: unless a peer has a dense one
        they stay as they are. Those of `faults` do not take part.
        """
        # All are read before any is written: a script may have swapped them.
        moved = {
            index: gradient.clone() if self._bucket_of(gradient) is not None else gradient
            for index in self._homes
            if not self.submitted(index)
            and index not in faults
            and (gradient := parameters[index].grad) is not None
            and (gradient is not self._views[index] or self._moved(index))
            # What travels in another precision lies there already unless it was changed since.
            and not (index in self._taken and self._as_taken(index))
        }
        for bucket, members in enumerate(self.plan.members):
            if self.step.submitted(bucket):
                continue
            present = []
            for position, index in enumerate(members):
                if parameters[index].grad is None or index in faults:
                    self._homes[index].zero_()
                    continue
                if index in moved:
                    self._write(index, moved[index])
                    if index not in sparse:
                        self._aim(index, parameters[index], moved[index])
                if index not in sparse:
                    present.append(position)
            asked = flags if bucket == self._last else 0
            self._submit(bucket, None if len(present) == len(members) else present, asked)

    def moved_s(self) -> float | None:
        """Return how long this rank has moved gradients since the last call, if it does so."""
        busy_s = self.buckets.busy_s
        if busy_s is None:
            return None
        before_s, self._busy_s = self._busy_s, busy_s
        return busy_s - before_s

    def mark(self, mark: Mark) -> None:
        """Say where this rank stands between two steps."""
        self._arrived = [0] * len(self._arrived)
        self.step.mark(mark)

    def finish(self, parameters: Sequence[torch.nn.Parameter]) -> tuple[int, ...] | None:
        """Wait for all buckets and point gradients at the results.

        Returns:
            None, or the members of the last bucket if a rank wants another plan: these were not
            reduced.

        Raises:
            StepsDifferError: a rank is not in a step, but at the end of its epoch.
        """
        left_out = None
        for bucket, members in enumerate(self.plan.members):
            present = self.step.wait(bucket)
            if present is None:
                left_out = members
            elif not (self._in_place and present is members):
                for index in present:
                    self._point(parameters[index], index)
        self.step.end()
        self._begin_step()
        return left_out

    def sit_out(self) -> bool | None:
        """Bring zeros to a step of the others (see BucketStep.sit_out)."""
        replanned = self.step.sit_out()
        if replanned is not None:
            self._begin_step()
        return replanned

    def come_back(self) -> None:
        """Leave out a step's number: all ranks have joined."""
        self._arrived = [0] * len(self._arrived)
        self.step.skip()

    def _begin_step(self) -> None:
        """Expect all gradients; what has come in so far is found when the rest is submitted."""
        self._arrived = [0] * len(self._arrived)
        self._taken.clear()
        self._in_place = False

    def _point(self, parameter: torch.nn.Parameter, index: int) -> None:
        """Let a parameter have its result; what travelled in another precision is a copy."""
        # Setting it costs several times what looking at it does, and mostly it is there.
        if parameter.grad is not self._views[index] or self._moved(index):
            home = self._homes[index]
            if self._aim(index, parameter, home) is home:
                parameter.grad = home.to(parameter.dtype)

    def _aim(self, index: int, parameter: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
        """Point `p.grad` at its place if it has the type that is sent; return what it is then."""
        if self._moved(index):
            self._views[index] = self._homes[index].data
        view = self._views[index]
        if view.dtype != parameter.dtype:
            return otherwise
        parameter.grad = view
        return view

    def _write(self, index: int, gradient: torch.Tensor) -> None:
        # A gradient has a history of its own after backward(create_graph=True).
        if gradient.requires_grad:
            gradient = gradient.detach()
        self._homes[index].copy_(gradient.to_dense() if gradient.is_sparse else gradient)

    def _moved(self, index: int) -> bool:
        """Say whether the tensor that `p.grad` is pointed at has been given other memory."""
        view, home = self._views[index], self._homes[index]
        return any(ask(view) != ask(home) for ask in _GEOMETRY)

    def _as_taken(self, index: int) -> bool:
        """Say whether a gradient is what it was when it was taken."""
        gradient = self._parameters[index].grad
        taken, version = self._taken[index]
        return (
            gradient is taken
            and gradient._version == version
            and not (gradient is self._views[index] and self._moved(index))
        )

    def _bucket_of(self, gradient: torch.Tensor) -> int | None:
        """Return the bucket in whose memory a gradient lies, if it does in any."""
        if gradient.is_sparse:
            return None
        at = gradient.data_ptr()
        nearest = bisect_right(self._starts, at) - 1
        return self._at[nearest] if nearest >= 0 and at < self._stops[nearest] else None

    def _submit(self, bucket: int, present: Sequence[int] | None = None, flags: int = 0) -> None:
        if self._norms.due and current() is not None:
            dtype = self.plan.shapes[bucket][1]
            self._norms.before(bucket, [self.buckets.arrays[bucket]], dtype)
        self.submitted_s[bucket] = time.monotonic()
        self.step.submit(bucket, present, flags)


def of_another_shape(gradient: torch.Tensor, wanted: torch.Tensor) -> str:
    """Say what is wrong with a gradient that has not its parameter's shape."""
    return f"has the shape {list(gradient.shape)}. Give it its parameter's, {list(wanted.shape)}."


def in_channels_last(parameter: torch.Tensor) -> bool:
    """Say whether a parameter lies in memory with its channels last."""
    return parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last)


def view_like(
    flat: torch.Tensor, offset: int, parameter: torch.nn.Parameter, channels_last: bool
) -> torch.Tensor:
    """Return a stretch of a bucket in a parameter's shape."""
    stretch = flat[offset : offset + parameter.numel()]
    if channels_last:
        return stretch.as_strided(parameter.shape, parameter.stride())
    return stretch.view(parameter.shape)

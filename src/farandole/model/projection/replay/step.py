"""A training step played again on paper: buckets that go while backward still computes.

Computing brings gradients; a bucket goes as soon as it is ready and a channel is free. Both work at
once, and each slows the other down: while anything is on its way computing advances at 1/contention
of its speed, and while computing goes on the link works at 1/slowdown of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farandole.model.projection.records import Bucket
from farandole.model.projection.replay.allreduce import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A step as it would go."""

    step_s: float
    exposed_s: float
    """What the step takes longer than computing alone: waiting, and being slowed down."""
    communication_s: float
    """While any gradient was on its way."""


@dataclass(slots=True)
class _OnItsWay:
    latency_s: float
    transfer_s: float

    @property
    def left(self) -> bool:
        return self.latency_s > 0 or self.transfer_s > 0


def replay(
    buckets: Sequence[Bucket],
    cost: Callable[[int], Cost],
    *,
    backward_s: float | None = None,
    update_s: float = 0.0,
    slowdown: float = 1.0,
    contention: float = 1.0,
    channels: int = 1,
    overlap: bool = True,
) -> Replayed:
    """Play a step.

    Args:
        buckets: in the order in which they go; when each is ready, computing alone.
        cost: of an all-reduce of so many bytes.
        backward_s: when computing is over, on the buckets' clock; by default with the last bucket.
        update_s: the optimizer's, and whatever else follows the last gradient.
        slowdown: of communication while computing goes on, at least 1.
        contention: of computing while communication goes on, at least 1.
        channels: buckets on their way at a time; they share the link.
        overlap: False: no bucket goes before computing is over.
    """
    computing_s = max([backward_s or 0.0, *(bucket.ready_s for bucket in buckets)])
    marks = deque(
        (bucket.ready_s if overlap else computing_s, bucket.bytes)
        for bucket in sorted(buckets, key=lambda bucket: bucket.ready_s)
    )
    done_s, now_s, busy_s = 0.0, 0.0, 0.0
    waiting: deque[_OnItsWay] = deque()
    moving: list[_OnItsWay] = []
    while True:
        while marks and done_s >= marks[0][0]:
            costs = cost(marks.popleft()[1])
            waiting.append(_OnItsWay(costs.latency_s, costs.transfer_s))
        moving = [one for one in moving if one.left]
        while waiting and len(moving) < channels:
            following = waiting.popleft()
            if following.left:
                moving.append(following)
        computes = done_s < computing_s
        if not computes and not moving:
            break
        mark_s = marks[0][0] if marks else computing_s
        pace = 1 / contention if moving else 1.0
        drag = slowdown if computes else 1.0
        sharing = sum(one.latency_s <= 0 for one in moving)
        spans = [one.latency_s * drag or one.transfer_s * drag * sharing for one in moving]
        if computes:
            spans.append((mark_s - done_s) / pace)
        span_s = min(spans)
        if computes:
            # Exactly, or rounding leaves a rest that no span reaches.
            reached = (mark_s - done_s) / pace <= span_s
            done_s = mark_s if reached else done_s + span_s * pace
        for one, own_s in zip(moving, spans, strict=False):
            if one.latency_s > 0:
                one.latency_s = 0.0 if own_s <= span_s else one.latency_s - span_s / drag
            else:
                moved_s = span_s / (drag * sharing)
                one.transfer_s = 0.0 if own_s <= span_s else one.transfer_s - moved_s
        now_s += span_s
        busy_s += span_s if moving else 0.0
    return Replayed(
        step_s=now_s + update_s,
        exposed_s=max(0.0, now_s - computing_s),
        communication_s=busy_s,
    )

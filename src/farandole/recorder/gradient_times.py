"""When gradients are ready, in a few steps of a run: what a projection replays.

Hooks are put on the parameters for a sampled step and taken off at its end, so that all other steps
know nothing of it. They tell of single gradients, in the order in which backward brings them: which
buckets these go into is not asked, so that one worker, DDP and Farandole are measured alike, and
other sizes of buckets can be tried on paper.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from farandole.recorder.recorder import Recorder

# Behind the first steps, which are slower, and early enough for launches of twenty steps.
_FIRST, _STRIDE, _EARLY = 6, 4, 12
# Then now and then: a run may slow down or speed up.
_LATER_STRIDE, _MOST = 64, 32
MOST_PIECES = 64
"""Of how many pieces a line tells at most: gradients that come one after the other are joined."""

Piece = tuple[int, float]
"""Bytes, and when all of them were ready."""


def is_sampled(step: int) -> bool:
    """Say whether a step, counting from 0, is one to look at."""
    early = _FIRST + _STRIDE * (_EARLY - 1)
    if step <= early:
        return step >= _FIRST and (step - _FIRST) % _STRIDE == 0
    return step % _LATER_STRIDE == 0 and step // _LATER_STRIDE <= _MOST - _EARLY


def join_pieces(pieces: Sequence[Piece], most: int = MOST_PIECES) -> list[Piece]:
    """Join pieces that come one after the other until there are few enough.

    Args:
        pieces: in any order.
        most: how many may be left.
    """
    least = sum(nbytes for nbytes, _ in pieces) / most
    joined: list[Piece] = []
    open_bytes, reached = 0, 0.0
    for nbytes, ready_s in sorted(pieces, key=lambda piece: piece[1]):
        open_bytes, reached = open_bytes + nbytes, ready_s
        if open_bytes >= least:
            joined.append((open_bytes, reached))
            open_bytes = 0
    if open_bytes:
        joined.append((open_bytes, reached))
    return joined


class GradientTimes:
    """Watches parameters in sampled steps."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._came: dict[int, Piece] = {}

    def step_ends(self, recorder: Recorder, parameters: Sequence[Any]) -> None:
        """Tell of the step that ends, if it was watched; watch the next, if that is sampled.

        Args:
            recorder: has not been told yet that the step ends.
            parameters: of all optimizers.
        """
        if self._hooks:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
            self._tell(recorder)
        if is_sampled(recorder.steps + 1):
            self._watch(parameters)

    def _tell(self, recorder: Recorder) -> None:
        pieces, self._came = join_pieces(list(self._came.values())), {}
        if pieces:
            recorder.tell(
                "buckets",
                step=recorder.steps,
                bytes=[nbytes for nbytes, _ in pieces],
                ready_s=[round(ready_s, 6) for _, ready_s in pieces],
            )

    def _watch(self, parameters: Sequence[Any]) -> None:
        watched = [parameter for parameter in parameters if parameter.requires_grad]
        # On a device the host's clock says nothing; sharded ones have gradients of their own kind.
        if all(p.is_leaf and p.device.type == "cpu" and _is_plain(p) for p in watched):
            came = self._came
            came.clear()
            self._hooks = [p.register_post_accumulate_grad_hook(_noting(came)) for p in watched]


def _noting(came: dict[int, Piece]) -> Any:
    clock = time.monotonic

    def note(parameter: Any) -> None:
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse:
            # With several backward passes the last one counts.
            came[id(parameter)] = (gradient.nbytes, clock())

    return note


def _is_plain(parameter: Any) -> bool:
    import torch

    return type(parameter) is torch.nn.Parameter or type(parameter) is torch.Tensor

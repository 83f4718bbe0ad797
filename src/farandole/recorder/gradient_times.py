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

# Behind the first steps, which are slower, and early enough for launches of twenty steps; then now
# and then: a run may slow down or speed up.
SAMPLED = frozenset([*range(6, 61, 6), *range(64, 1409, 64)])
"""The steps to look at, counting from 0."""
LOOKS = SAMPLED | {step - 1 for step in SAMPLED}
"""The steps at whose ends there is something to do."""
MOST_PIECES = 64
"""Parameters to look at: the largest, which hold nearly all of a model, for a hook costs more than
ten microseconds."""

Piece = tuple[int, float]
"""Bytes, and when all of them were ready."""


def scaled_pieces(pieces: Sequence[Piece], total_bytes: int) -> list[Piece]:
    """Return pieces in the order of their times, as large together as all gradients are."""
    seen = sum(nbytes for nbytes, _ in pieces)
    ordered = sorted(pieces, key=lambda piece: piece[1])
    return [(round(nbytes * total_bytes / seen), ready_s) for nbytes, ready_s in ordered]


class GradientTimes:
    """Watches parameters in sampled steps."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._came: dict[int, Piece] = {}
        self._total_bytes = 0

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
        if recorder.steps + 1 in SAMPLED:
            self._watch(parameters)

    def _tell(self, recorder: Recorder) -> None:
        pieces = scaled_pieces(list(self._came.values()), self._total_bytes)
        self._came.clear()
        if pieces:
            recorder.tell(
                "buckets",
                step=recorder.steps,
                bytes=[nbytes for nbytes, _ in pieces],
                ready_s=[round(ready_s, 6) for _, ready_s in pieces],
            )

    def _watch(self, parameters: Sequence[Any]) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # On a device the host's clock says nothing; sharded ones have gradients of their own kind.
        if not all(map(_is_plain, trained)):
            return
        largest = sorted(trained, key=lambda parameter: -parameter.nbytes)[:MOST_PIECES]
        self._total_bytes = sum(parameter.nbytes for parameter in trained)
        self._hooks = [p.register_post_accumulate_grad_hook(self._note) for p in largest]

    def _note(self, parameter: Any) -> None:
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse:
            # With several backward passes the last one counts.
            self._came[id(parameter)] = (gradient.nbytes, time.monotonic())


def _is_plain(parameter: Any) -> bool:
    import torch

    return (
        type(parameter) in (torch.nn.Parameter, torch.Tensor)
        and parameter.is_leaf
        and parameter.device.type == "cpu"
    )

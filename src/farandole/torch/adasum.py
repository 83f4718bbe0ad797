"""Adasum in training: each worker steps by itself, and what the steps have changed is combined.

Combining changes and not gradients lets optimizers with a memory, such as Adam, have one of their
own gradients; it is what Horovod does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from farandole.engine.arguments import Adasum, reduction_of
from farandole.engine.engine import Engine
from farandole.recorder.recorder import current
from farandole.torch.collectives import compress
from farandole.torch.operations import allreduce_operation, group


class Deltas:
    """Combines the changes of one optimizer's parameters."""

    def __init__(self, engine: Engine, names: Sequence[str], compressor: Any) -> None:
        """Begin; all ranks do so in the same order.

        Args:
            engine: combines.
            names: of the parameters; the same on every rank.
            compressor: a class with `compress` and `decompress`, or None.
        """
        self._engine, self._compressor = engine, compressor
        self._name = engine.unique_name("adasum", "\n".join(names))

    @contextmanager
    def combining(self, parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
        """Combine what happens to parameters in this context; without an error only."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in trained]
        yield
        with torch.no_grad():
            changes = [
                (parameter - start).contiguous()
                for parameter, start in zip(trained, before, strict=True)
            ]
            for parameter, start, change in zip(
                trained, before, self._combined(changes), strict=True
            ):
                parameter.copy_(start + change)

    def _combined(self, changes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if not changes:
            return []
        pairs = [compress(change, self._compressor) for change in changes]
        how = reduction_of(None, Adasum)
        # Each tensor by itself, because layers differ in direction; agreed on as one.
        operation = group(
            "grouped_allreduce", [allreduce_operation(sent, sent, how) for sent, _ in pairs]
        )
        recorder = current()
        if recorder is not None:
            recorder.sent("gradients", sum(sent.nbytes for sent, _ in pairs))
        self._engine.run(self._name, operation)
        return [undo(sent) for sent, undo in pairs]

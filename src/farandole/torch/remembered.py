"""Operations on small tensors that come again: described once, and found by the tensor.

Describing an all-reduce of 4 KB takes several calls into torch. Where ranks share cores each meets
cold caches, and together they were a third of the whole call.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from farandole.engine.adasum import AdasumReduce
from farandole.engine.operations import Allreduce
from farandole.torch.tensors import buffer_of
from farandole.transport.shm.eager import LARGEST_BYTES

_MOST = 1024
"""Each keeps some kilobytes; a program that loops over more tensors than this gains little."""

_Entry = tuple[weakref.ref[torch.Tensor], int, torch.Size, tuple[Any, ...], Allreduce]
"""A tensor with its memory and shape, the arguments, and what was made for them."""


class Remembered:
    """In-place all-reduces by tensor; an entry goes with its tensor."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def find(self, tensor: torch.Tensor, arguments: tuple[Any, ...]) -> Allreduce | None:
        """Return what was made for this tensor and these arguments, if it still fits.

        A tensor can be given other memory or another shape in place (`x.data = y`, `resize_`,
        `t_`); its type and its device it keeps for life.
        """
        entry = self._entries.get(id(tensor))
        if entry is None:
            return None
        made_for, at, shape, made_with, operation = entry
        if (
            made_for() is tensor
            and at == tensor.data_ptr()
            and shape == tensor.shape
            and made_with == arguments
            and tensor.is_contiguous()
        ):
            return operation
        return None

    def keep(
        self, tensor: torch.Tensor, arguments: tuple[Any, ...], operation: Allreduce | AdasumReduce
    ) -> Allreduce | AdasumReduce:
        """Remember an operation for the next time if it is small; return it."""
        if isinstance(operation, AdasumReduce):
            return operation
        small = 0 < operation.source.nbytes <= LARGEST_BYTES and not tensor.is_cuda
        if small and (len(self._entries) < _MOST or id(tensor) in self._entries):
            key = id(tensor)
            # An array of the tensor itself would keep it alive, and the entry with it.
            buffer = buffer_of(tensor.detach())
            operation = Allreduce(operation.signature, buffer, buffer, operation.how)
            forget = weakref.ref(tensor, lambda _: self._entries.pop(key, None))
            at, shape = tensor.data_ptr(), tensor.shape
            self._entries[key] = (forget, at, shape, arguments, operation)
        return operation

"""Horovod's compression of what is sent: none, or half precision on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from farandole.errors import UsageError
from farandole.transport.reduction import Reduction


class Compressor:
    """What every compression offers; one of the user's own derives from it, or offers the same."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return what is sent, and what undoing needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return what has arrived as it was."""
        return tensor


class NoneCompressor(Compressor):
    """Sends a tensor as it is."""


class FP16Compressor(Compressor):
    """Sends floating-point tensors in half precision."""

    wire: torch.dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """Return what is sent, and what undoing needs."""
        sent = tensor.to(cls.wire) if tensor.is_floating_point() else tensor
        return sent, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """Return what has arrived in its old precision."""
        return tensor.to(ctx)


class BF16Compressor(FP16Compressor):
    """Sends floating-point tensors as bfloat16: the range of float32, with fewer digits."""

    wire = torch.bfloat16


class Compression:
    """The ways there are: `hvd.Compression.none`, `fp16` and, beyond Horovod's, `bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """What DistributedOptimizer was asked for."""

    compressor: Any = None
    """A class with `compress` and `decompress`; None to send gradients as they are."""
    as_dense: bool = False
    """Whether sparse gradients are sent as dense ones."""
    groups: Mapping[int, int] = field(default_factory=dict)
    """By index of the parameter: the group whose gradients are reduced together."""
    sharded: bool = False
    """Whether each rank updates its part of the weights."""

    @property
    def in_buckets(self) -> bool:
        """Whether gradients fit into buckets: not what a compressor of the user's makes of them."""
        return self.compressor is None or hasattr(self.compressor, "wire")

    def options(self, how: Reduction) -> dict[str, Any]:
        """Return what must be the same on every rank, by the names of its arguments."""
        wire = getattr(self.compressor, "wire", None)
        return {
            "op": str(how),
            "compression": str(wire or getattr(self.compressor, "__name__", self.compressor)),
            "groups": sorted(self.groups.items()),
            "sharded": self.sharded,
        }

    def sent_as(self, parameter: torch.Tensor) -> torch.dtype:
        """Return the type in which a parameter's gradient lies in its bucket."""
        if self.compressor is None or not parameter.is_floating_point():
            return parameter.dtype
        wire: torch.dtype = self.compressor.wire
        return wire


def compressor_of(compression: Any) -> Any:
    """Return what compresses gradients, None if nothing does.

    Raises:
        UsageError: `compression` cannot.
    """
    if compression is None or compression is Compression.none:
        return None
    if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
        raise UsageError(
            f"compression={compression!r} is no compression: use hvd.Compression.none, fp16 or "
            "bf16, and name further arguments, such as backward_passes_per_step=2."
        )
    return compression


def groups_of(
    parameters: Sequence[torch.nn.Parameter],
    groups: int | Sequence[Sequence[torch.Tensor]] | None,
) -> dict[int, int]:
    """Return the group of each parameter that is in one, by its index.

    Args:
        parameters: all of the optimizer.
        groups: how many groups of neighbours to make, or the members of each.
    """
    if groups is None or groups == 0:
        return {}
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups < 0:
            raise UsageError(f"groups={groups}: it must be 0 or more, or a list of groups.")
        count = min(groups, len(parameters))
        return {index: index * count // len(parameters) for index in range(len(parameters))}
    if not isinstance(groups, list | tuple):
        raise UsageError(f"groups={groups!r}: give a number, or a list of lists of parameters.")
    places = {id(parameter): index for index, parameter in enumerate(parameters)}
    found: dict[int, int] = {}
    for number, members in enumerate(groups):
        if not isinstance(members, list | tuple):
            raise UsageError("groups should be a number, or a list of lists of parameters.")
        for member in members:
            if not isinstance(member, torch.Tensor):
                raise UsageError(f"Group {number} of groups has {member!r}, which is no tensor.")
            index = places.get(id(member))
            if index is None:
                # As in Horovod: whole layers may be named though some of it is not trained.
                continue
            if index in found:
                raise UsageError(f"Parameter number {index} stands twice in groups.")
            found[index] = number
    return found

"""Horovod's compression of what is sent: none, or half precision on the way."""

from __future__ import annotations

from typing import Any

import torch


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

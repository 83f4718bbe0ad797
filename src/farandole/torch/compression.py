"""Horovod's compression of what is sent: none, or half precision on the way."""

from __future__ import annotations

from typing import Any

import torch


class NoneCompressor:
    """Sends a tensor as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return what is sent, and what undoing needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return what has arrived as it was."""
        return tensor


class FP16Compressor:
    """Sends floating-point tensors in half precision."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """Return what is sent, and what undoing needs."""
        sent = tensor.half() if tensor.is_floating_point() else tensor
        return sent, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """Return what has arrived in its old precision."""
        return tensor.to(ctx)


class Compression:
    """The ways there are: `hvd.Compression.none`, `hvd.Compression.fp16`."""

    none = NoneCompressor
    fp16 = FP16Compressor

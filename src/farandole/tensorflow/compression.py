"""Horovod's compression of what is sent: none, or half precision on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from farandole.errors import UsageError


class NoneCompressor:
    """Sends a tensor as it is."""

    wire: str | None = None

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return what is sent, and what undoing needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return what has arrived as it was."""
        return tensor


class FP16Compressor:
    """Sends floating-point tensors in float16."""

    wire: str | None = "float16"

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return what is sent, and what undoing needs."""
        sent = tf.cast(tensor, cls.wire) if tensor.dtype.is_floating else tensor
        return sent, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Return what has arrived in its old precision."""
        return tf.cast(tensor, ctx)


class BF16Compressor(FP16Compressor):
    """Sends floating-point tensors in bfloat16, which has float32's range."""

    wire: str | None = "bfloat16"


class Compression:
    """The ways there are: `hvd.Compression.none`, `.fp16` and `.bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


# farandole.keras's have no methods: by what they send they are known.
_BY_WIRE = {None: NoneCompressor, "float16": FP16Compressor, "bfloat16": BF16Compressor}


def compressor_of(compression: Any) -> Any:
    """Return the class with `compress` and `decompress` that is meant; None means none.

    Raises:
        UsageError: it is no compression.
    """
    if compression is None:
        return NoneCompressor
    if hasattr(compression, "compress") and hasattr(compression, "decompress"):
        return compression
    if getattr(compression, "wire", "") in _BY_WIRE:
        return _BY_WIRE[compression.wire]
    raise UsageError(
        f"compression={compression!r} is no compression: use hvd.Compression.none, fp16 or bf16, "
        "or a class with compress and decompress."
    )


def compress(tensor: Any, compression: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return what is sent, and how what arrives becomes what it was."""
    chosen = compressor_of(compression)
    sent, ctx = chosen.compress(tensor)
    return sent, lambda result: chosen.decompress(result, ctx)

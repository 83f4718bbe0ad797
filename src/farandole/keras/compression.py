"""Horovod's compression of gradients: none, or half precision on the way."""

from __future__ import annotations

from typing import Any

from farandole.errors import UsageError


class NoneCompressor:
    """Sends gradients as they are."""

    wire: str | None = None


class FP16Compressor:
    """Sends floating-point gradients in float16."""

    wire: str | None = "float16"


class BF16Compressor:
    """Sends floating-point gradients in bfloat16, which has float32's range."""

    wire: str | None = "bfloat16"


class Compression:
    """The ways there are: `hvd.Compression.none`, `.fp16` and `.bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def wire_of(compression: Any) -> str | None:
    """Return the type in which gradients are sent; None for their own.

    Raises:
        UsageError: it is no compression.
    """
    if compression is None:
        return None
    if not hasattr(compression, "wire"):
        raise UsageError(
            f"compression={compression!r} is no compression: use hvd.Compression.none, fp16 or "
            "bf16."
        )
    wire: str | None = compression.wire
    return wire

"""Half precision as bits: to float32 and back, rounded to nearest even.

Torch does it several times faster and is used where it is imported anyway; a process of TensorFlow
or JAX does not import it for this. Both give the same bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_QUIET_NAN = 0x7FC0


def widen(bits: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return new float32 values of a flat array of float16 or bfloat16 bits."""
    torch = sys.modules.get("torch")
    if torch is not None:
        wide: np.ndarray[Any, Any] = (
            torch.from_numpy(bits).view(getattr(torch, dtype)).float().numpy()
        )
        return wide
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray[Any, Any], out: np.ndarray[Any, Any], dtype: str) -> None:
    """Write flat float32 values as float16 or bfloat16 bits."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.from_numpy(out).view(getattr(torch, dtype)).copy_(torch.from_numpy(values))
    elif dtype == "float16":
        np.copyto(out.view(np.float16), values, casting="unsafe")
    else:
        whole = values.view(np.uint32)
        # Half of the last bit that stays, and one more if that bit is odd: ties go to even.
        rounded = (whole + (0x7FFF + (whole >> 16 & 1))) >> 16
        np.copyto(out, np.where(np.isnan(values), _QUIET_NAN, rounded), casting="unsafe")

"""Keeping memory that is freed in one training step for the next.

Training frees and allocates the same tens of megabytes in every step. glibc gives what lies free at
the end of its heap back to the kernel as soon as that is twice its largest allocation, and gets it
back page by page: a perceptron of 5.8 million parameters had some 300 to 1,000 page faults a step,
a few milliseconds of it, and has next to none when the heap is kept.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30
# The most that glibc takes. It gets there by itself, unless the other limit is set.
_LARGEST_ON_HEAP_BYTES = 32 << 20


def keep_freed_memory(environ: Mapping[str, str]) -> bool:
    """Let malloc keep up to a gigabyte of freed memory; say whether it does.

    Who has set glibc's own variables has decided, and other allocators decide for themselves.
    """
    if sys.platform != "linux" or tuned_by_user(environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    kept = mallopt(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP_BYTES)
    return bool(kept and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def tuned_by_user(environ: Mapping[str, str]) -> bool:
    """Say whether the environment already tells glibc how to allocate."""
    return "glibc.malloc." in environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") and name.endswith("_") for name in environ
    )

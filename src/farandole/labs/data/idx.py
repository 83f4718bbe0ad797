"""Read arrays of bytes in MNIST's idx format, as they are or compressed by gzip."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError

_UNSIGNED_BYTE = 8
_GZIP = b"\x1f\x8b"


def read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """Read the one array of a file.

    Raises:
        DataError: the file is cut short, or holds something else.
    """
    content = _content(path)
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(
            f"{path}: an idx file of {dimensions} dimensions begins with {start} bytes, this one "
            f"ends after {len(content)}. Get it again."
        )
    if content[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
        raise DataError(
            f"{path}: expected an idx file of bytes with {dimensions} dimensions (it begins with "
            f"00 00 {_UNSIGNED_BYTE:02x} {dimensions:02x}), found {content[:4].hex(' ')}."
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    expected, found = math.prod(shape), len(content) - start
    if expected != found:
        state = "cut short" if found < expected else "too long"
        raise DataError(
            f"{path} is {state}: it announces {' x '.join(map(str, shape))} = {expected:,} bytes "
            f"of data and holds {found:,}. Get it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(path: Path) -> bytes:
    """Read a file, and undo gzip by what it begins with: browsers do so and leave the name."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} is cut short or damaged: gzip says {error}. Get it again."
        ) from None

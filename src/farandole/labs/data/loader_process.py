"""What a loader process runs: turn image files into pixels of one size.

It is started by its path in isolated mode and imports Pillow and nothing of farandole, so that it
is up in a tenth of a second, whatever the training script imports. It reads its order as JSON and
writes records: one byte that tells success, four bytes of length, then pixels or the reason. The
first record says whether Pillow is there.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
import warnings
from typing import Any, BinaryIO

HEAD = struct.Struct(">BI")


def main() -> None:
    # Ctrl-C reaches the whole group of processes; this one ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order, results = json.load(sys.stdin.buffer), sys.stdout.buffer
    sys.path[:] = order["path"]
    try:
        from PIL import Image
    except ImportError as error:
        _write(results, 0, str(error).encode(errors="replace"))
        return
    warnings.simplefilter("ignore")
    # A picture of a hundred megapixels among training data is a mistake or an attack.
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    _write(results, 1, b"")
    for file in order["files"]:
        try:
            pixels = read_pixels(file, **order["box"])
        except Exception as error:
            # Damaged files fail in many ways: OSError, SyntaxError, ValueError, struct.error.
            _write(results, 0, reason(error).encode(errors="replace"))
        else:
            _write(results, 1, pixels)


def read_pixels(file: str, *, height: int, width: int, top: float, bottom: float) -> bytes:
    """Return the image's pixels, height x width x RGB.

    Args:
        top: where to begin, as a part of the image's height.
        bottom: where to end.
    """
    from PIL import Image

    with Image.open(file) as image:
        # Lets a JPEG be decoded at half its size and less, as long as it stays large enough.
        image.draft("RGB", (width, round(height / (bottom - top))))
        whole = image.convert("RGB")
    box = (0, top * whole.height, whole.width, bottom * whole.height)
    if (whole.size, top, bottom) != ((width, height), 0.0, 1.0):
        whole = whole.resize((width, height), Image.Resampling.BILINEAR, box=box)
    return whole.tobytes()


def reason(error: Any) -> str:
    """Say in a line why a file cannot be read, without its name."""
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image that Pillow knows"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return " ".join(str(error).split()) or type(error).__name__


def _write(results: BinaryIO, success: int, payload: bytes) -> None:
    results.write(HEAD.pack(success, len(payload)) + payload)
    results.flush()


if __name__ == "__main__":
    main()

"""What a loader process runs: turn image files into pixels of one size.

It is started by its path in isolated mode and imports Pillow and nothing of farandole, so that it
is up in a tenth of a second, whatever the training script imports. It reads its order as JSON,
writes pixels into a file, and answers by a line of JSON for each image: its index, with its width
and height or the reason why it cannot be read.
"""

from __future__ import annotations

import json
import os
import sys
import warnings


def main() -> None:
    order = json.load(sys.stdin.buffer)
    sys.path[:] = order["path"]
    from PIL import Image

    warnings.simplefilter("ignore")
    # A picture of a hundred megapixels among training data is a mistake or an attack.
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    for index, file in order["files"]:
        try:
            sides, pixels = read_pixels(file, **order["box"])
            os.pwrite(order["pixels"], pixels, index * len(pixels))
            print(json.dumps((index, sides)), flush=True)
        except Exception as error:
            # Damaged files fail in many ways: OSError, SyntaxError, ValueError, struct.error.
            print(json.dumps((index, reason(error))), flush=True)


def read_pixels(
    file: str, *, height: int, width: int, top: float, bottom: float
) -> tuple[tuple[int, int], bytes]:
    """Return the image's width and height, and its pixels, height x width x RGB.

    Args:
        top: where to begin, as a part of the image's height.
        bottom: where to end.
    """
    from PIL import Image

    with Image.open(file) as image:
        sides = image.size
        # Lets a JPEG be decoded at half its size and less, as long as it stays large enough.
        image.draft("RGB", (width, round(height / (bottom - top))))
        whole = image.convert("RGB")
    box = (0, top * whole.height, whole.width, bottom * whole.height)
    if (whole.size, top, bottom) != ((width, height), 0.0, 1.0):
        whole = whole.resize((width, height), Image.Resampling.BILINEAR, box=box)
    return sides, whole.tobytes()


def reason(error: Exception) -> str:
    """Say in a line why a file cannot be read, without its name."""
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image that Pillow knows"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()

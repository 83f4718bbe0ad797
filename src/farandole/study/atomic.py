"""Files that are either whole or not there, whatever ends us and however full the disk is."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farandole.errors import StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_json(path: Path, content: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write strict JSON; see `write_text`."""
    # ASCII: names of files and a script's output need not be UTF-8, and escapes keep them.
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n", durable=durable)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a file under a temporary name beside its place and rename it.

    Args:
        path: The file; what it held before stays when anything fails.
        text: Its whole content.
        durable: Whether to wait for the disk, so that it is also there after a power cut.

    Raises:
        StoreError: The disk is full or the folder may not be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> StoreError:
    """Say that a file of a study could not be written, and what to do."""
    if error.errno in _FULL:
        why, then = "the disk is full", "Free some space, then go on with --resume"
    else:
        why = error.strerror or str(error)
        then = "Choose a folder that can be written to, or make this one so and use --resume"
    return StoreError(
        f"{path} cannot be written: {why}. All that was written before is kept. {then}."
    )


def _sync_folder(folder: Path) -> None:
    """Make a renaming durable; file systems that cannot do so are none of our business."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""The folder that a user names: is it there, and what is in it?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from farandole.errors import DataError

_SHOWN = 6


def existing_folder(folder: Path | str, what: str) -> Path:
    """Return the folder.

    Raises:
        DataError: there is none.
    """
    path = Path(folder).expanduser()
    if path.is_dir():
        return path
    found = "it is a file" if path.exists() else "there is nothing"
    raise DataError(
        f"You gave {path} as the folder of {what} (--data {path}), but {found}. "
        "Give the folder that holds the data, or leave --data away for data that are made here."
    )


def first_folder(folder: Path, below: Sequence[str], names: Sequence[str]) -> Path | None:
    """Find the first of the folder and its subfolders `below` that holds one of the files."""
    for part in ("", *below):
        candidate = folder / part
        if any((candidate / name).is_file() for name in names):
            return candidate
    return None


def wrong_shape(folder: Path, what: str, expected: str) -> DataError:
    """Say what was expected in a folder and what is there."""
    return DataError(f"{folder} is not {what}. Expected: {expected}. Found: {listing(folder)}.")


def listing(folder: Path) -> str:
    """Name the first few entries of a folder."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        return f"a folder that cannot be read ({error.strerror})"
    if not entries:
        return "an empty folder"
    names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries[:_SHOWN]]
    more = f" and {len(entries) - _SHOWN:,} more" if len(entries) > _SHOWN else ""
    return ", ".join(names) + more

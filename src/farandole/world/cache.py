"""Where things are kept that can be made again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's folder for what Farandole can make again; None without a home."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore relative paths.
    if base.startswith("/"):
        return Path(base) / "farandole"
    home = environ.get("HOME", "")
    return Path(home) / ".cache" / "farandole" if home.startswith("/") else None

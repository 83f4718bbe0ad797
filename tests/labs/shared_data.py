"""Real data beside the checkout, for the tests that are better with them."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[3] / "shared" / "data"


def shared_data(name: str) -> Path:
    """Return the folder of a data set, or skip the test."""
    folder = _SHARED / name
    if not folder.is_dir():
        pytest.skip(f"put the data set into ../shared/data/{name} beside the checkout to run this")
    return folder

"""Public measurements beside the checkout, for the tests that score against them."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[4] / "shared" / "traces"


def shared_trace(name: str) -> Path:
    """Return the path of a table, or skip the test."""
    path = _SHARED / name
    if not path.is_file():
        pytest.skip(f"put the table into ../shared/traces/{name} beside the checkout to run this")
    return path

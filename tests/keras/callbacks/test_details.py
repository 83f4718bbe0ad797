"""What is the same on every backend, on two ranks with torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keras.checking import expect, names_of

_PROGRAM = Path(__file__).with_name("details.py")


@pytest.mark.ranks
@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_two_ranks(check: str) -> None:
    expect(_PROGRAM, check, "torch", 2)

"""Each backend for real: combined gradients against one process with the global batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keras.checking import BACKENDS, expect, names_of

_PROGRAM = Path(__file__).with_name("right_answers.py")


@pytest.mark.ranks
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_two_ranks(check: str, backend: str) -> None:
    expect(_PROGRAM, check, backend, 2)

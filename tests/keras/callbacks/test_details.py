"""What is the same on every backend, on two ranks with torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keras.checking import LAUNCH_S, Launch, names_of

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]

_PROGRAM = Path(__file__).with_name("details.py")


@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_two_ranks(check: str) -> None:
    Launch(program=_PROGRAM, backend="torch").expect(check)

"""The callbacks on each backend, for real; on torch with three ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keras.checking import LAUNCH_S, Launch, names_of

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]

_PROGRAM = Path(__file__).with_name("everywhere.py")


@pytest.mark.parametrize(("backend", "size"), [("torch", 3), ("tensorflow", 2), ("jax", 2)])
@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_real_ranks(check: str, backend: str, size: int) -> None:
    Launch(program=_PROGRAM, backend=backend, size=size).expect(check)

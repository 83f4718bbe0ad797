"""Sharded data of all kinds in fits of real ranks."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.keras.checking import LAUNCH_S, Launch, names_of

_PROGRAM = Path(__file__).with_name("fitting.py")
_NEEDS = {"check_a_loader": "torch", "check_a_tf_dataset": "tensorflow"}

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_two_ranks(check: str, backend: str) -> None:
    needed = _NEEDS.get(check, backend)
    if find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install 'farandole[{needed}]'")
    Launch(program=_PROGRAM, backend=backend).expect(check)

"""Sharded data of all kinds in fits of real ranks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.keras.checking import LAUNCH_S, Check, Outcomes, World, each

_NEEDS = {"check_a_loader": "torch", "check_a_tf_dataset": "tensorflow"}

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@each("data.fitting", World(backend="torch"), World(backend="jax"))
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    needed = _NEEDS.get(check.name, check.world.backend)
    if find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install 'farandole[{needed}]'")
    outcomes.expect(check)

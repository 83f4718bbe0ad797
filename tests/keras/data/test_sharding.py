"""Sharded data of all kinds in fits of real ranks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.keras.checking import JAX, LAUNCH_S, TORCH, Check, Outcomes, each

_NEEDS = {"check_a_loader": "torch", "check_a_tf_dataset": "tensorflow"}
# They give the same arrays whatever fit does with them; TensorFlow beside JAX takes seconds to
# import.
_DATASETS = ("check_a_tf_dataset",)

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@each("data.fitting", TORCH)
def test_on_torch(outcomes: Outcomes, check: Check) -> None:
    expect(outcomes, check)


@each("data.fitting", JAX, but=_DATASETS)
def test_on_jax(outcomes: Outcomes, check: Check) -> None:
    expect(outcomes, check)


def expect(outcomes: Outcomes, check: Check) -> None:
    needed = _NEEDS.get(check.name, check.world.backend)
    if find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install 'farandole[{needed}]'")
    outcomes.expect(check)

"""Sharded data of all kinds in fits of real ranks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.checking import JAX, LAUNCHES, TORCH, Check, Outcomes, World, each

_NEEDS = {"check_a_loader": "torch", "check_a_tf_dataset": "tensorflow"}
_DATASETS = ("check_a_tf_dataset",)

pytestmark = LAUNCHES


@each("keras.data.fitting", TORCH)
def test_on_torch(outcomes: Outcomes, check: Check) -> None:
    expect(outcomes, check)


@each("keras.data.fitting", JAX, but=_DATASETS)
def test_on_jax(outcomes: Outcomes, check: Check) -> None:
    expect(outcomes, check)


# They give the same arrays whatever fit does with them; TensorFlow beside JAX takes seconds to
# import.
@pytest.mark.soak
@each("keras.data.fitting", World(backend="jax", datasets=True), only=_DATASETS)
def test_on_jax_with_tensorflow(outcomes: Outcomes, check: Check) -> None:
    expect(outcomes, check)


def expect(outcomes: Outcomes, check: Check) -> None:
    needed = _NEEDS.get(check.name, check.world.backend)
    if find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install 'farandole[{needed}]'")
    outcomes.expect(check)

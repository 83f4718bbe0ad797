"""Each backend for real: combined gradients against one process with the global batch."""

from __future__ import annotations

import shutil

import pytest

from tests.keras.checking import BACKENDS, LAUNCH_S, THREE, Check, Outcomes, World, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]

_PROGRAM = "backends.right_answers"
_NARROW = (
    "check_sgd",
    "check_variables_in_another_order_and_in_parts",
    "check_a_train_step_of_ones_own",
    "check_unequal_steps_are_named_at_once",
)
_OF_THREE = ("check_adam", "check_unequal_steps_are_named_at_once")


@each(_PROGRAM, *(World(backend=backend) for backend in BACKENDS))
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (Debian's util-linux)")
@each(  # on torch there is no callback
    _PROGRAM,
    World(backend="tensorflow", narrow=True),
    World(backend="jax", narrow=True),
    only=_NARROW,
)
def test_on_one_core_with_one_thread(outcomes: Outcomes, check: Check) -> None:
    """Where a callback that blocks has the only thread, and all ranks the only core."""
    outcomes.expect(check)


@each(_PROGRAM, THREE, only=_OF_THREE)
def test_on_three_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

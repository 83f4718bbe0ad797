"""Each backend for real: combined gradients against one process with the global batch."""

from __future__ import annotations

import shutil

import pytest

from tests.keras.checking import (
    JAX,
    LAUNCH_S,
    TENSORFLOW,
    THREE,
    TORCH,
    Check,
    Outcomes,
    World,
    each,
)

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]

_PROGRAM = "backends.right_answers"
_NARROW = (
    "check_sgd",
    "check_variables_in_another_order_and_in_parts",
    "check_a_train_step_of_ones_own",
    "check_unequal_steps_are_named_at_once",
)
_OF_THREE = ("check_adam", "check_unequal_steps_are_named_at_once")
# Of how arrays are combined, which is the same code on TensorFlow; JAX compiles the longest.
_OF_ARRAYS = (
    "check_sum_is_size_times_the_average",
    "check_predivide",
    "check_half_precision_on_the_way",
)
_OF_TENSORFLOW = ("check_xla",)


@each(_PROGRAM, TENSORFLOW)
def test_on_tensorflow(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, TORCH, but=_OF_TENSORFLOW)
def test_on_torch(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, JAX, but=_OF_TENSORFLOW + _OF_ARRAYS)
def test_on_jax(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (Debian's util-linux)")
@each(_PROGRAM, World(backend="jax", narrow=True), only=_NARROW)
def test_on_one_core_with_one_thread(outcomes: Outcomes, check: Check) -> None:
    """Where a callback that blocks has the only thread, and all ranks the only core.

    On torch there is no callback.
    """
    outcomes.expect(check)


# One thread of TensorFlow's is all there is in tests/tensorflow and tests/recorder/keras, too.
@pytest.mark.soak
@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (Debian's util-linux)")
@each(_PROGRAM, World(backend="tensorflow", narrow=True), only=_NARROW)
def test_on_one_core_with_one_thread_of_tensorflow(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, THREE, only=_OF_THREE)
def test_on_three_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

"""Each backend for real: combined gradients against one process with the global batch."""

from __future__ import annotations

from tests.checking import (
    JAX,
    LAUNCHES,
    NARROW_JAX,
    NARROW_TENSORFLOW,
    TENSORFLOW,
    THREE,
    TORCH,
    Check,
    Outcomes,
    each,
)

pytestmark = LAUNCHES

_PROGRAM = "keras.backends.right_answers"
_NARROW = (
    "check_sgd",
    "check_variables_in_another_order_and_in_parts",
    "check_a_train_step_of_ones_own",
    "check_unequal_steps_are_named_at_once",
)
_OF_THREE = ("check_adam", "check_unequal_steps_are_named_at_once", "check_collectives")
_OF_TENSORFLOW = ("check_xla",)
_OF_TORCH = ("check_every_optimizer", "check_gradients_with_other_memory")
_OF_JAX = ("check_each_worker_has_cores_of_its_own",)
# torch's fit knows no such thing.
_OF_COMPILED = ("check_several_steps_in_one_execution",)


@each(_PROGRAM, TENSORFLOW, but=_OF_TORCH + _OF_JAX)
def test_on_tensorflow(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, TORCH, but=_OF_TENSORFLOW + _OF_JAX + _OF_COMPILED)
def test_on_torch(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, JAX, but=_OF_TENSORFLOW + _OF_TORCH)
def test_on_jax(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, NARROW_TENSORFLOW, NARROW_JAX, only=_NARROW)
def test_on_one_core_with_one_thread(outcomes: Outcomes, check: Check) -> None:
    """Where a callback that blocks has the only thread, and all ranks the only core.

    On torch there is no callback.
    """
    outcomes.expect(check)


@each(_PROGRAM, THREE, only=_OF_THREE)
def test_on_three_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

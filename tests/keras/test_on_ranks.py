"""Keras on real ranks, on each backend.

The checks are in backends/, callbacks/, data/ and reproducibility.py; each world has one launch for
all of them.
"""

from __future__ import annotations

import pytest

import farandole.keras as hvd
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
    World,
    each,
)
from tests.keras import reproducibility

pytestmark = LAUNCHES

_ANSWERS, _STOP = "keras.backends.right_answers", "keras.backends.clean_stop"
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
_OF_COMPILED = (
    "check_several_steps_in_one_execution",
    "check_a_fit_of_several_steps_in_one_execution",
)
_DATASETS = ("check_a_tf_dataset",)


@each(_ANSWERS, TENSORFLOW, but=_OF_TORCH + _OF_JAX)
def test_answers_on_tensorflow(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_ANSWERS, TORCH, but=_OF_TENSORFLOW + _OF_JAX + _OF_COMPILED)
def test_answers_on_torch(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_ANSWERS, JAX, but=_OF_TENSORFLOW + _OF_TORCH)
def test_answers_on_jax(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_ANSWERS, NARROW_TENSORFLOW, NARROW_JAX, only=_NARROW)
def test_on_one_core_with_one_thread(outcomes: Outcomes, check: Check) -> None:
    """Where a callback that blocks has the only thread, and all ranks the only core.

    On torch there is no callback.
    """
    outcomes.expect(check)


@each(_ANSWERS, THREE, only=_OF_THREE)
def test_on_three_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("keras.backends.process_sets", TORCH, TENSORFLOW, JAX, THREE)
def test_optimizers_of_some_workers(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_STOP, TENSORFLOW, JAX)
def test_all_ranks_leave_after_the_same_update(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_STOP, TORCH, but=_OF_COMPILED)
def test_all_ranks_leave_on_torch(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_STOP, TORCH, JAX, only=("check_a_fit",))
def test_the_launcher_says_that_all_have_left(outcomes: Outcomes, check: Check) -> None:
    """On TensorFlow a rank is killed at the end of that launch: tensorflow/test_programs.py."""
    launched = outcomes.of(check.world)
    assert launched.code == 0, launched.output
    assert "farandole: stopped cleanly on SIGUSR1" in launched.output


@pytest.mark.soak
@each(
    _STOP,
    *(World(backend=backend, size=1) for backend in ("torch", "tensorflow", "jax")),
    but=_OF_COMPILED,
)
def test_one_worker_leaves(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("keras.callbacks.everywhere", THREE, TENSORFLOW, JAX)
def test_callbacks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("keras.callbacks.details", TORCH)
def test_callbacks_where_backends_do_not_differ(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("keras.data.fitting", TORCH, JAX, but=_DATASETS)
def test_sharded_data(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("keras.data.tf_dataset", TENSORFLOW)
def test_sharded_tf_datasets(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


# They give the same arrays whatever fit does with them; TensorFlow beside another backend takes
# seconds to import.
@pytest.mark.soak
@each(
    "keras.data.fitting",
    *(World(backend=backend, datasets=True) for backend in ("torch", "jax")),
    only=_DATASETS,
)
def test_tf_datasets_on_another_backend(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("keras.reproducibility", TORCH, TENSORFLOW, JAX)
def test_one_seed_gives_one_training(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


# Keras on torch takes tensors for arrays in a way that NumPy warns of.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_one_seed_gives_one_training_on_one_worker() -> None:
    hvd.init()
    try:
        reproducibility.check_one_seed_gives_one_training()
    finally:
        hvd.shutdown()

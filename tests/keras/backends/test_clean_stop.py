"""Each backend leaves training when a scheduler asks for it; the checks are in clean_stop.py."""

from __future__ import annotations

import pytest

from tests.checking import JAX, LAUNCHES, TENSORFLOW, TORCH, Check, Outcomes, World, each

pytestmark = LAUNCHES

_PROGRAM = "keras.backends.clean_stop"
# torch's fit knows no such thing.
_OF_COMPILED = ("check_a_fit_of_several_steps_in_one_execution",)
_ALONE = [World(backend=backend, size=1) for backend in ("torch", "tensorflow", "jax")]


@each(_PROGRAM, TENSORFLOW, JAX)
def test_all_ranks_leave_after_the_same_update(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, TORCH, but=_OF_COMPILED)
def test_all_ranks_leave_on_torch(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, TORCH, JAX, only=("check_a_fit",))
def test_the_launcher_says_that_all_have_left(outcomes: Outcomes, check: Check) -> None:
    """On TensorFlow a rank is killed at the end of that launch: tensorflow/test_programs.py."""
    launched = outcomes.of(check.world)
    assert launched.code == 0, launched.output
    assert "farandole: stopped cleanly on SIGUSR1" in launched.output


@pytest.mark.soak
@each(_PROGRAM, *_ALONE, but=_OF_COMPILED)
def test_one_worker_leaves(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

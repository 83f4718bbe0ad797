"""Each backend for real: combined gradients against one process with the global batch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.keras.checking import BACKENDS, Launch, names_of

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

_PROGRAM = Path(__file__).with_name("right_answers.py")
_NARROW = (
    "check_sgd",
    "check_variables_in_another_order_and_in_parts",
    "check_a_train_step_of_ones_own",
    "check_unequal_steps_are_named_at_once",
)
_OF_THREE = ("check_adam", "check_unequal_steps_are_named_at_once")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_two_ranks(check: str, backend: str) -> None:
    Launch(program=_PROGRAM, backend=backend).expect(check)


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (Debian's util-linux)")
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])  # on torch there is no callback
@pytest.mark.parametrize("check", _NARROW)
def test_on_one_core_with_one_thread(check: str, backend: str) -> None:
    """Where a callback that blocks has the only thread, and all ranks the only core."""
    Launch(
        program=_PROGRAM,
        backend=backend,
        only=_NARROW,
        prefix=("taskset", "-c", "0"),
        env=(("FARANDOLE_TEST_INTER_OP", "1"),),
    ).expect(check)


@pytest.mark.parametrize("check", _OF_THREE)
def test_on_three_ranks(check: str) -> None:
    Launch(program=_PROGRAM, backend="torch", size=3, only=_OF_THREE).expect(check)

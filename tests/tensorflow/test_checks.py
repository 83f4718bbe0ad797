"""TensorFlow on real ranks; checks/ has a module for each capability."""

from __future__ import annotations

import pytest

from tests.checking import LAUNCHES, NARROW_TENSORFLOW, TENSORFLOW, Check, Outcomes, World, each

pytestmark = LAUNCHES

# Where a callback that blocks has the only thread, and all ranks the only core.
_BLOCKING = ("callback", "gradients", "tape")
_OTHERS = (
    *("clean_stop", "collectives", "errors", "functions", "join", "process_sets"),
    "sync_batch_norm",
)
# What they combine with is the engine's, which is tested on 2 to 4 ranks.
_OF_THREE = ("collectives", "errors", "join", "process_sets", "sync_batch_norm")


@each([f"tensorflow.checks.{name}" for name in _BLOCKING], NARROW_TENSORFLOW, TENSORFLOW)
def test_callbacks_that_block(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each([f"tensorflow.checks.{name}" for name in _OTHERS], TENSORFLOW)
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@pytest.mark.soak
@each([f"tensorflow.checks.{name}" for name in _OF_THREE], World(backend="tensorflow", size=3))
def test_on_three_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("tensorflow.checks.killed", TENSORFLOW)
def test_a_rank_that_is_killed_is_named(outcomes: Outcomes, check: Check) -> None:
    """Not the one that waits for it in a tf.function, whose error is TensorFlow's."""
    launched = outcomes.of(check.world)
    assert launched.code == 128 + 9, launched.output
    assert "farandole: rank 1" in launched.output
    assert "SIGKILL" in launched.output

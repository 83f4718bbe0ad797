"""Operations inside of tf.function; the checks are in checks/callback.py."""

from __future__ import annotations

from tests.checking import LAUNCHES, NARROW_TENSORFLOW, TENSORFLOW, Check, Outcomes, each

pytestmark = LAUNCHES


@each("tensorflow.checks.callback", NARROW_TENSORFLOW, TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("tensorflow.checks.killed", TENSORFLOW)
def test_a_rank_that_is_killed_is_named(outcomes: Outcomes, check: Check) -> None:
    """Not the one that waits for it in a tf.function, whose error is TensorFlow's."""
    launched = outcomes.of(check.world)
    assert launched.code == 128 + 9, launched.output
    assert "farandole: rank 1" in launched.output
    assert "SIGKILL" in launched.output

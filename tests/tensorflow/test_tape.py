"""DistributedGradientTape; the checks are in checks/tape.py."""

from __future__ import annotations

from tests.checking import LAUNCHES, NARROW_TENSORFLOW, TENSORFLOW, Check, Outcomes, each

pytestmark = LAUNCHES


@each("tensorflow.checks.tape", NARROW_TENSORFLOW, TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

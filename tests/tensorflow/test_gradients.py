"""A tape's gradients in their buckets; the checks are in checks/gradients.py."""

from __future__ import annotations

from tests.checking import LAUNCHES, NARROW_TENSORFLOW, TENSORFLOW, Check, Outcomes, each

pytestmark = LAUNCHES


@each("tensorflow.checks.gradients", NARROW_TENSORFLOW, TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

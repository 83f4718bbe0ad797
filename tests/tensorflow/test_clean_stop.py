"""Leaving training together in loops of one's own; the checks are in checks/clean_stop.py."""

from __future__ import annotations

from tests.checking import LAUNCHES, TENSORFLOW, Check, Outcomes, each

pytestmark = LAUNCHES


@each("tensorflow.checks.clean_stop", TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

"""Compression; the checks are in checks/compression.py."""

from __future__ import annotations

from tests.checking import LAUNCHES, TENSORFLOW, Check, Outcomes, each

pytestmark = LAUNCHES


@each("tensorflow.checks.compression", TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

"""Ranks that have no more data; the checks are in checks/join.py."""

from __future__ import annotations

import pytest

from tests.checking import LAUNCHES, TENSORFLOW, Check, Outcomes, World, each

pytestmark = LAUNCHES


@each("tensorflow.checks.join", TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@pytest.mark.soak
@each("tensorflow.checks.join", World(backend="tensorflow", size=3))
def test_on_three_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

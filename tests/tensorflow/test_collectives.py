"""Collective operations on TensorFlow's tensors; the checks are in checks/collectives.py."""

from __future__ import annotations

import pytest

from tests.checking import LAUNCHES, TENSORFLOW, Check, Outcomes, World, each

pytestmark = LAUNCHES


@each("tensorflow.checks.collectives", TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


# What they combine with is the engine's, which is tested on 2 to 4 ranks.
@pytest.mark.soak
@each("tensorflow.checks.collectives", World(backend="tensorflow", size=3))
def test_on_three_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

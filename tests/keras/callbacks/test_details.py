"""What is the same on every backend, on two ranks with torch."""

from __future__ import annotations

import pytest

from tests.keras.checking import LAUNCH_S, TORCH, Check, Outcomes, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@each("callbacks.details", TORCH)
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

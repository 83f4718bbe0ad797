"""What is the same on every backend, on two ranks with torch."""

from __future__ import annotations

from tests.checking import LAUNCHES, TORCH, Check, Outcomes, each

pytestmark = LAUNCHES


@each("keras.callbacks.details", TORCH)
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

"""The callbacks on each backend, for real; on torch with three ranks."""

from __future__ import annotations

from tests.checking import JAX, LAUNCHES, TENSORFLOW, THREE, Check, Outcomes, each

pytestmark = LAUNCHES


@each("keras.callbacks.everywhere", THREE, TENSORFLOW, JAX)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

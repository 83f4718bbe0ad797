"""Optimizers of some of the workers; the checks are in process_sets.py."""

from __future__ import annotations

from tests.checking import JAX, LAUNCHES, TENSORFLOW, THREE, TORCH, Check, Outcomes, each

pytestmark = LAUNCHES


@each("keras.backends.process_sets", TORCH, TENSORFLOW, JAX, THREE)
def test_on_each_backend(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

"""One seed gives one training, on each backend, on one worker and on two."""

from __future__ import annotations

from dataclasses import replace

from tests.checking import JAX, LAUNCHES, TENSORFLOW, TORCH, Check, Outcomes, each

pytestmark = LAUNCHES

_ALONE = [replace(world, size=1) for world in (TORCH, TENSORFLOW, JAX)]


@each("keras.reproducibility", TORCH, TENSORFLOW, JAX)
def test_on_two_workers(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each("keras.reproducibility", *_ALONE, only=["check_one_seed_gives_one_training"])
def test_on_one_worker(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

"""Learning rates as functions of the epoch."""

from __future__ import annotations

import pytest

from farandole.keras.callbacks import Plan, momentum_correction, warmup_multiplier


@pytest.mark.parametrize(
    ("epoch", "batch", "expected"),
    [
        (1, 0, None),
        (2, 0, 0.1 * 0.5**2),
        (2, 1, None),
        (3, 0, 0.1 * 0.5**3),
        (4, 0, None),
    ],
)
def test_staircase(epoch: int, batch: int, expected: float | None) -> None:
    plan = Plan(initial_lr=0.1, multiplier=lambda e: 0.5**e, start_epoch=2, end_epoch=4)
    assert plan.rate(epoch, batch, None) == expected


@pytest.mark.parametrize(
    ("epoch", "batch", "expected"), [(0, 0, 0.0), (0, 1, 0.25), (1, 3, 1.75), (7, 2, 7.5)]
)
def test_with_every_batch(epoch: int, batch: int, expected: float) -> None:
    plan = Plan(initial_lr=1.0, multiplier=lambda e: e, staircase=False)
    assert plan.rate(epoch, batch, 4) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("steps", [1, 3, 7])
@pytest.mark.parametrize("warmup", [1, 2, 5])
def test_warmup_is_horovods_line(size: int, steps: int, warmup: int) -> None:
    for step in range(steps * warmup):
        got = warmup_multiplier(
            step / steps, size=size, warmup_epochs=warmup, steps_per_epoch=steps
        )
        # Horovod: 1 / size * (epoch * (size - 1) / warmup + 1), of the epoch at the batch's end.
        expected = 1 / size * ((step + 1) / steps * (size - 1) / warmup + 1)
        assert got == pytest.approx(expected, rel=1e-12)
    assert got == 1.0


def test_warmup_of_part_of_an_epoch_does_not_overshoot() -> None:
    rates = [
        warmup_multiplier(step / 4, size=2, warmup_epochs=0.5, steps_per_epoch=4)
        for step in range(4)
    ]
    assert rates == [0.75, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("old", "new", "expected"), [(0.1, 0.2, 2.0), (0.2, 0.1, 0.5), (0.0, 0.1, 1.0)]
)
def test_momentum_correction(old: float, new: float, expected: float) -> None:
    assert momentum_correction(old, new) == expected

"""Where the warm-up ends."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.model.warmup import warmup_steps

NAN = float("nan")


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([], 0),
        ([NAN], 1),
        ([NAN, 1.0, 1.0], 1),
        ([NAN, *[1.0] * 30], 1),
        # Three slow steps: the median of the window settles with the second step of the rest.
        ([NAN, 9.0, 8.0, 7.0, *[1.0] * 30], 3),
        # One hiccup at the begin is not worth a warm-up; the launch's median does not see it.
        ([NAN, 9.0, *[1.0] * 30], 1),
        # A hiccup later does not prolong it.
        ([NAN, 1.0, 1.0, 9.0, *[1.0] * 30], 1),
        # Slower by less than 5 % is not warm-up.
        ([NAN, *[1.04] * 5, *[1.0] * 30], 1),
        # Never more than half.
        ([NAN, *[2.0] * 14, *[1.0] * 15], 14),
        ([NAN, *[2.0] * 10, *[1.0] * 5], 8),
    ],
)
def test_warmup(durations: list[float], expected: int) -> None:
    assert warmup_steps(np.asarray(durations, dtype=np.float64)) == expected


def test_a_slow_decay_ends_within_the_noise() -> None:
    rng = np.random.default_rng(1)
    settled = 1.0 + rng.normal(0.0, 0.02, 200)
    settled[:20] += np.linspace(2.0, 0.0, 20)
    found = warmup_steps(settled)
    assert 12 <= found <= 20

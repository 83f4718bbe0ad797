from __future__ import annotations

import math

import numpy as np
import pytest

from farandole.model.projection.replay.jitter import NO_JITTER, Jitter, jitter_of


def normal(ranks: int, steps: int, seed: int = 1) -> Jitter:
    found = jitter_of(np.random.default_rng(seed).normal(10.0, 1.0, (ranks, steps)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    # Expected maxima of normal draws: 1/sqrt(pi), and from tables (Harter 1961).
    ("workers", "expected"),
    [(2, 1 / math.sqrt(math.pi)), (4, 1.02938), (10, 1.53875), (100, 2.50759)],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_slowest_of_so_many(workers: int, expected: float, ranks: int) -> None:
    assert normal(ranks, 20_000).slowest_s(workers) == pytest.approx(expected, rel=0.03)


def test_beyond_what_was_seen_it_grows_with_the_logarithm() -> None:
    # Exponential draws: the expected maximum of N is 1 + 1/2 + ... + 1/N, about ln N + 0.577.
    draws = -np.log(1 - (np.arange(400) + 0.5) / 400)
    found = Jitter(residuals_s=draws - draws.mean())
    for workers in (200, 1000):
        expected = sum(1 / n for n in range(1, workers + 1)) - 1
        assert found.slowest_s(workers) == pytest.approx(expected, rel=0.05)


def test_a_few_residuals_are_taken_as_normal() -> None:
    found = Jitter(residuals_s=np.array([-1.0, -1.0, 1.0, 1.0]))
    assert found.slowest_s(8) == pytest.approx(1.42360, rel=0.02)


def test_what_all_ranks_share_does_not_add_up() -> None:
    shared = np.random.default_rng(3).normal(10.0, 5.0, 2000)
    own = np.random.default_rng(4).normal(0.0, 0.1, (2, 2000))
    found = jitter_of(shared + own)
    assert found is not None
    assert found.slowest_s(2) == pytest.approx(0.1 / math.sqrt(math.pi), rel=0.1)


def test_more_workers_never_wait_less() -> None:
    found = normal(2, 100)
    waits = [found.slowest_s(workers) for workers in range(1, 300)]
    assert waits == sorted(waits)
    assert waits[0] == 0


def test_one_rank_says_nothing() -> None:
    assert jitter_of(np.ones((1, 50))) is None
    assert jitter_of(np.full((2, 50), np.nan)) is None
    assert NO_JITTER.slowest_s(64) == 0

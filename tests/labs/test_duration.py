"""Estimates of launches: by their parts, and monotone."""

from __future__ import annotations

import itertools

import pytest

from farandole.labs.effort import launch_s, startup_s, steps_s
from farandole.labs.lab import Rate

RATE = Rate(samples_per_s=100.0, startup_s=5.0)


def test_one_worker_takes_start_up_samples_and_a_third_of_the_test() -> None:
    found = launch_s(RATE, workers=1, cores=2, samples=1000, epochs=3, test_samples=300)
    assert found == pytest.approx(5 + 3 * (10 + 1))


def test_two_workers_on_two_cores_are_faster_and_four_are_not() -> None:
    times = [launch_s(RATE, workers=n, cores=2, samples=1000, epochs=3) for n in (1, 2, 4)]
    assert times[1] < times[0]
    # As fast in training, but imports take turns.
    assert times[2] - times[1] == pytest.approx(5.0)


def test_more_of_anything_takes_no_less() -> None:
    amounts = itertools.product((100, 1000), (1, 2), (0, 100), (1, 2, 8))
    for samples, epochs, test, workers in amounts:
        less = launch_s(
            RATE, workers=workers, cores=2, samples=samples, epochs=epochs, test_samples=test
        )
        more = launch_s(
            RATE,
            workers=workers,
            cores=2,
            samples=2 * samples,
            epochs=epochs,
            test_samples=2 * test,
        )
        assert less < more


def test_steps_of_each_batch_begin_with_a_start_up() -> None:
    assert steps_s(RATE, threads=1, batches=(10, 100), steps=20) == pytest.approx(10 + 2 + 20)
    assert startup_s(RATE, workers=8, cores=2) == 20.0

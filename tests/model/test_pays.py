"""The size that pays: against job times computed at it, and at one sample less."""

from __future__ import annotations

import pytest

from farandole.model.pays import SAVED, Speed, fixed_time, size_that_pays

ONE = Speed(workers=1, fixed_s=10.0, samples_per_s=100.0)
TWO = Speed(workers=2, fixed_s=12.0, samples_per_s=180.0)


def test_at_the_size_found_a_quarter_is_saved_and_below_it_is_not() -> None:
    found = size_that_pays(ONE, TWO, epochs=10, batch=32)
    assert found.time is not None
    assert TWO.job_s(found.time, 10) <= (1 - SAVED) * ONE.job_s(found.time, 10)
    assert TWO.job_s(found.time - 1, 10) > (1 - SAVED) * ONE.job_s(found.time - 1, 10)


def test_jobs_are_as_long_at_the_even_size() -> None:
    found = size_that_pays(ONE, TWO, epochs=10, batch=32)
    # 2 s more of fixed time against 10 x (1/100 - 1/180) s gained per sample: 45 samples.
    assert found.even == 45
    assert TWO.job_s(45, 10) == pytest.approx(ONE.job_s(45, 10))


def test_steps_decide_where_time_would_be_content_with_less() -> None:
    quick = Speed(workers=2, fixed_s=0.0, samples_per_s=200.0)
    found = size_that_pays(ONE, quick, epochs=10, batch=32)
    assert found.time == 1
    # 20 steps at a global batch of 64.
    assert found.steps == 1280
    assert found.samples == 1280


def test_no_size_pays_when_training_itself_gains_too_little() -> None:
    slow = Speed(workers=2, fixed_s=10.0, samples_per_s=120.0)
    found = size_that_pays(ONE, slow, epochs=10, batch=32)
    assert found.time is None
    assert found.samples is None
    assert found.even == 1


def test_slower_training_never_breaks_even_whatever_it_saves_at_the_start() -> None:
    slow = Speed(workers=2, fixed_s=1.0, samples_per_s=90.0)
    assert size_that_pays(ONE, slow, epochs=10, batch=32).even is None


def test_more_epochs_need_fewer_samples() -> None:
    sizes = [size_that_pays(ONE, TWO, epochs=epochs, batch=1).time for epochs in (1, 10, 100)]
    assert sizes == sorted(sizes, key=lambda size: -(size or 0))
    assert len(set(sizes)) == 3


def test_fixed_time_is_the_rest_of_the_job() -> None:
    assert fixed_time(30.0, 10, 200, 100.0) == pytest.approx(10.0)
    assert fixed_time(19.0, 10, 200, 100.0) == 0.0

"""Time and money of whole jobs, and the data size from which more workers pay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.errors import UsageError
from farandole.model.jobs import (
    SAVED,
    JobTime,
    Speed,
    fixed_time,
    price,
    size_that_pays,
    time_job,
    training_steps,
)
from farandole.model.measured import measure
from farandole.study.records import Cell, Launch
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    timed_launch,
)


def job_of(*launches: Launch, **spec: object) -> JobTime | None:
    cells, _ = measure(make_study(launches))
    return time_job(cells[0], spec)


def whole(**changes: object) -> Launch:
    """Begin at 98, first epoch from 103, two epochs of 10 s with 2 s between, end at 130."""
    ranks = [
        make_rank(
            number,
            make_steps(1.0, 20, begin_s=103.0),
            epochs=((103.0, 113.0 - number), (115.0 + number, 125.0)),
            dataset_size=100,
        )
        for number in (0, 1)
    ]
    given = {"purpose": "accuracy", "outcome": "ok", "wall_s": 32.0, "begin_s": 98.0}
    return make_launch(Cell(workers=2, batch=5), ranks, **(given | changes))


def test_the_times_of_a_whole_job() -> None:
    found = job_of(whole())
    assert found is not None
    assert found.job_s is not None
    assert found.epoch_s is not None
    assert found.job_s.value == pytest.approx(32.0)
    assert found.epochs == 2
    assert found.epoch_s.value == pytest.approx(10.0)
    assert found.epoch_measured
    assert found.startup_s == pytest.approx(5.0)
    assert found.between_s == pytest.approx(7.0)
    assert found.fixed_s == pytest.approx(12.0)
    assert found.fixed_share == pytest.approx(12 / 32)
    assert found.steps_per_epoch == 10


def test_parts_of_a_job_add_up_beside_shorter_launches() -> None:
    # A launch of one slow epoch after a slow start, which is no part of the job of two.
    rank = make_rank(0, make_steps(3.0, 10, begin_s=140.0), epochs=((140.0, 170.0),))
    short = make_launch(
        Cell(workers=2, batch=5), [rank, rank], purpose="epoch", outcome="stopped", wall_s=75.0
    )
    found = job_of(whole(), replace(short, begin_s=98.0))
    assert found is not None
    assert (found.startup_s, found.between_s, found.fixed_s) == pytest.approx((5.0, 7.0, 12.0))


def test_a_launch_of_one_epoch_counts_although_it_was_stopped() -> None:
    found = job_of(whole(purpose="epoch", outcome="stopped"))
    assert found is not None
    assert found.fixed_s == pytest.approx(12.0)


def test_steps_of_the_next_epoch_do_not_count() -> None:
    # One epoch from 103 to 113, 4 s of validation, then three steps of 1 s until it was ended.
    durations = [*[1.0] * 10, 5.0, 1.0, 1.0]
    rank = make_rank(0, make_steps(durations, begin_s=103.0), epochs=((103.0, 113.0),))
    launch = make_launch(
        Cell(workers=1, batch=5), [rank], purpose="epoch", wall_s=22.0, begin_s=98.0
    )
    found = job_of(launch)
    assert found is not None
    assert found.job_s is not None
    assert found.job_s.value == pytest.approx(19.0)
    assert (found.startup_s, found.between_s) == pytest.approx((5.0, 4.0))


def test_an_epoch_launch_without_an_epoch_has_no_job_time() -> None:
    found = job_of(timed_launch(Cell(workers=1, batch=8), 0.1, purpose="epoch", wall_s=9.0))
    assert found is None


@pytest.mark.parametrize("changes", [{"outcome": "stopped"}, {"outcome": "failed"}])
def test_launches_that_say_nothing_of_a_jobs_length(changes: dict[str, object]) -> None:
    found = job_of(whole(**({"purpose": "speed"} | changes)))
    assert found is None or found.job_s is None


def test_an_epoch_is_computed_from_steps_where_none_was_seen() -> None:
    found = job_of(timed_launch(Cell(workers=2, batch=8), 0.1), dataset_size=1000)
    assert found is not None
    assert found.steps_per_epoch == 63
    assert found.epoch_s is not None
    assert found.epoch_s.value == pytest.approx(6.3)
    assert not found.epoch_measured
    assert found.fixed_s is None


def test_the_longest_jobs_are_the_users() -> None:
    short = make_launch(
        Cell(workers=1),
        [make_rank(0, make_steps(1.0, 8), epochs=((103.0, 113.0),))],
        purpose="epoch",
        wall_s=20.0,
    )
    long = make_launch(
        Cell(workers=1),
        [make_rank(0, make_steps(1.0, 8), epochs=((103.0, 113.0), (114.0, 124.0)))],
        purpose="accuracy",
        outcome="ok",
        wall_s=31.0,
    )
    found = job_of(short, long)
    assert found is not None
    assert found.job_s is not None
    assert (found.epochs, found.job_s.value) == (2, 31.0)


def test_a_tables_times_and_epochs() -> None:
    found = job_of(table_launch(Cell(workers=2), job_s=319.0, epoch_s=11.0, epochs=10.0))
    assert found is not None
    assert found.fixed_s == pytest.approx(209.0)
    assert found.startup_s is None


def test_steps_without_more_are_no_job() -> None:
    assert job_of(timed_launch(Cell(workers=1, batch=8), 0.1)) is None


def test_training_steps() -> None:
    assert training_steps(40, 60_000, 128) == pytest.approx(18_750)
    assert training_steps(40, 60_000, 128, workers=6) == pytest.approx(3_125)


def test_workers_times_price_times_hours() -> None:
    launch = table_launch(Cell(workers=4, batch=8), job_s=1800.0, epoch_s=360.0, throughput=1000.0)
    cells, _ = measure(make_study([launch]))
    found = price(cells[0], time_job(cells[0], {}), None, 2.5)
    assert found is not None
    assert found.job == pytest.approx(5.0)
    assert found.per_epoch == pytest.approx(1.0)
    # A million samples take 1,000 s.
    assert found.per_million_samples == pytest.approx(4 * 2.5 * 1000 / 3600)
    assert found.to_target is None


def test_nothing_to_price_without_a_time() -> None:
    cells, _ = measure(make_study([table_launch(Cell(workers=4), {"loss": 3.0})]))
    assert price(cells[0], None, None, 2.5) is None


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_a_price_that_is_none_is_refused(wrong: float) -> None:
    cells, _ = measure(make_study([timed_launch(Cell(workers=1, batch=8), 0.1)]))
    with pytest.raises(UsageError, match="--price"):
        price(cells[0], None, None, wrong)


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

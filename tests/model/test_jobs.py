"""Job, epoch and fixed time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.model.info.job import JobTime
from farandole.model.jobs import time_job, training_steps
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


@pytest.mark.parametrize("changes", [{"outcome": "stopped"}, {"busy": True}, {"outcome": "failed"}])
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

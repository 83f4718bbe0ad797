"""Time and money of whole jobs, and the data size from which more workers are worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.jobs import (
    SAVED,
    JobTime,
    Speed,
    break_even,
    price,
    time_job,
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
    cells, _ = measure(make_study(launches, spec=spec))
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


# One slow epoch after a slow start, which is no part of the job of two.
SLOW = make_rank(0, make_steps(3.0, 10, begin_s=140.0), epochs=((140.0, 170.0),))
SHORT = make_launch(
    Cell(workers=2, batch=5), [SLOW, SLOW], purpose="epoch", outcome="stopped", wall_s=75.0
)


@pytest.mark.parametrize(
    "launches",
    [
        [whole()],
        [whole(purpose="epoch", outcome="stopped")],
        [whole(), replace(SHORT, begin_s=98.0)],
    ],
)
def test_the_times_of_a_whole_job_add_up(launches: list[Launch]) -> None:
    found = job_of(*launches)
    assert found.job_s.value == pytest.approx(32.0)
    assert (found.epochs, found.epoch_s.value) == (2, pytest.approx(10.0))
    assert found.epoch_measured
    assert (found.startup_s, found.between_s, found.fixed_s) == pytest.approx((5.0, 7.0, 12.0))
    assert found.fixed_share == pytest.approx(12 / 32)
    assert found.steps_per_epoch == 10


def test_steps_of_the_next_epoch_do_not_count() -> None:
    # One epoch from 103 to 113, 4 s of validation, then three steps of 1 s until it was ended.
    durations = [*[1.0] * 10, 5.0, 1.0, 1.0]
    rank = make_rank(0, make_steps(durations, begin_s=103.0), epochs=((103.0, 113.0),))
    found = job_of(make_launch(Cell(workers=1, batch=5), [rank], purpose="epoch", wall_s=22.0))
    assert found.job_s.value == pytest.approx(19.0)
    assert (found.startup_s, found.between_s) == pytest.approx((5.0, 4.0))


def test_an_epoch_is_computed_from_steps_where_none_was_seen() -> None:
    found = job_of(timed_launch(Cell(workers=2, batch=8), 0.1), dataset_size=1000)
    assert found.steps_per_epoch == 63
    assert found.epoch_s.value == pytest.approx(6.3)
    assert (found.epoch_measured, found.fixed_s) == (False, None)


def test_a_tables_times_and_epochs() -> None:
    found = job_of(table_launch(Cell(workers=2), job_s=319.0, epoch_s=11.0, epochs=10.0))
    assert (found.fixed_s, found.startup_s) == (pytest.approx(209.0), None)
    found = job_of(table_launch(Cell(workers=2), job_s=319.0, epoch_s=11.0), epochs=10)
    assert found.fixed_s == pytest.approx(209.0)


@given(startup=st.floats(0.0, 1e4), job_s=st.floats(0.1, 1e4))
def test_the_parts_of_a_job_never_exceed_it(startup: float, job_s: float) -> None:
    begin = 98.0 + startup
    rank = make_rank(0, make_steps(0.1, 10, begin_s=begin), epochs=((begin, begin + 1.0),))
    cell = Cell(workers=1, batch=8)
    launch = make_launch(cell, [rank], outcome="ok", purpose="epoch", wall_s=job_s)
    (job,) = analyse(make_study([launch])).each("job")
    assert job.startup_s + (job.between_s or 0.0) <= job.job_s.value * (1 + 1e-12)


def test_workers_times_price_times_hours() -> None:
    launch = table_launch(Cell(workers=4, batch=8), job_s=1800.0, epoch_s=360.0, throughput=1000.0)
    (cell,), _ = measure(make_study([launch]))
    found = price(cell, time_job(cell, {}), None, 2.5)
    assert (found.job, found.per_epoch, found.to_target) == (5.0, pytest.approx(1.0), None)
    # A million samples take 1,000 s.
    assert found.per_million_samples == pytest.approx(4 * 2.5 * 1000 / 3600)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="--price"):
            price(cell, None, None, wrong)
    (cell,), _ = measure(make_study([table_launch(Cell(workers=4), {"loss": 3.0})]))
    assert price(cell, None, None, 2.5) is None


ONE = Speed(workers=1, fixed_s=10.0, samples_per_s=100.0)
TWO = Speed(workers=2, fixed_s=12.0, samples_per_s=180.0)


def test_jobs_are_as_long_at_the_even_size_and_a_quarter_is_saved_at_the_other() -> None:
    found = break_even(ONE, TWO, epochs=10, batch=32)
    # 2 s more of fixed time against 10 x (1/100 - 1/180) s gained per sample: 45 samples.
    assert found.even == 45
    assert TWO.job_s(45, 10) == pytest.approx(ONE.job_s(45, 10))
    assert TWO.job_s(found.time, 10) <= (1 - SAVED) * ONE.job_s(found.time, 10)
    assert TWO.job_s(found.time - 1, 10) > (1 - SAVED) * ONE.job_s(found.time - 1, 10)
    sizes = [break_even(ONE, TWO, epochs=epochs, batch=1).time for epochs in (1, 10, 100)]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize(
    ("fixed_s", "rate", "expected"),
    [
        # Time would be content with less than the 20 steps at a global batch of 64.
        (0.0, 200.0, (1, 1, 1280, 1280)),
        # Training itself gains too little.
        (10.0, 120.0, (1, None, 1280, None)),
        # Slower training never breaks even, whatever it saves at the start.
        (1.0, 90.0, (None, None, 1280, None)),
    ],
)
def test_sizes(fixed_s: float, rate: float, expected: tuple[int | None, ...]) -> None:
    many = Speed(workers=2, fixed_s=fixed_s, samples_per_s=rate)
    found = break_even(ONE, many, epochs=10, batch=32)
    assert (found.even, found.time, found.steps, found.samples) == expected

"""Projections against real ranks on shaped links, which is the one place where a time is a test."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from farandole.bench.live import (
    QUICK,
    TO_REACH,
    WIDE,
    Measurement,
    Point,
    Scenario,
    as_json,
    compare,
    fit,
    lines_of,
    mean_error,
    project,
    summary,
)
from farandole.model.projection.intervals import Prediction
from farandole.testing import Nursery
from farandole.testing.shaped import ShapedWorld, Use, why_not

IDLE, BUSY = Use(cores=0.1, waited=0.01), Use(cores=0.1, waited=0.5)


def point(workers: int, measured_s: float, use: Use = IDLE) -> Point:
    """A projection of one second, between 0.9 and 1.2."""
    return Point(
        projected=Prediction(value=1.0, low=0.9, high=1.2, ratio=workers / 4),
        measured=Measurement(workers=workers, step_s=measured_s, use=use),
    )


def test_errors_are_averaged_over_the_points_that_count() -> None:
    found = [point(8, 1 / 1.1), point(8, 1 / 0.95), point(8, 9.0, BUSY), point(16, 1.0)]
    assert mean_error(found, 8) == pytest.approx(0.075)
    assert mean_error(found, 16) == pytest.approx(0.0)
    assert mean_error([point(8, 1.0, BUSY)], 8) is None


def test_lines_and_json_say_all_of_a_point() -> None:
    good, void = lines_of([point(8, 1.25), point(8, 1.0, BUSY)])
    assert all(text in good for text in ("1250.0 ms measured", "-20.0 %", "not covered"))
    assert "void: a rank waited" in void
    found = json.loads(json.dumps(as_json({"a model": [point(8, 1 / 1.05)]})))
    (only,) = found["points"]
    assert (only["scenario"], only["workers"], only["void"]) == ("a model", 8, "")
    assert only["measured_s"] == pytest.approx(1 / 1.05)
    assert found["error"]["8"] == {"mean_abs": pytest.approx(0.05), "to_reach": 0.10}
    assert found["error"]["16"]["mean_abs"] is None


def test_the_summary_says_whether_it_was_reached() -> None:
    good = summary([point(8, 1.05), point(16, 1.1)])
    assert good[0].endswith("error, reached: 10%")
    assert good[-1] == "2 of 2 points within their 90 % intervals"
    assert "NOT reached" in summary([point(8, 1.2), point(16, 1.1)])[0]
    assert "idle machine" in summary([point(8, 1.05), point(16, 1.1, BUSY)])[1]


def test_buckets_come_evenly_over_backward() -> None:
    scenario = Scenario("", 1e6, (8, 16), forward_s=1.0, backward_s=2.0)
    computing = scenario.computing()
    assert [(b.bytes, b.ready_s) for b in computing.buckets] == [(8, 2.0), (16, 3.0)]
    assert computing.end_s == 3.0


def test_ranks_that_wait_for_processors_do_not_count() -> None:
    assert point(8, 1.0).measured.void == ""
    assert "a rank waited for a processor for 50% of the time" in point(8, 1.0, BUSY).measured.void
    crowded = point(8, 1.0, Use(cores=0.7, waited=0.01)).measured.void
    assert crowded.startswith("the ranks took 70% of all cores")


def test_a_world_that_keeps_to_the_law_is_foretold() -> None:
    # A link of a MB/s that costs a millisecond per message, and buckets that nothing hides.
    scenario = Scenario("", 8e6, (10**6,), forward_s=0.1, backward_s=0.1)

    def allreduce_s(workers: int, nbytes: int) -> float:
        return 2 * (workers - 1) * 2 * 1e-3 + 2 * (workers - 1) / workers * nbytes / 1e6

    def took(workers: int) -> Measurement:
        sizes = (4096, 10**6)
        return Measurement(
            workers=workers,
            step_s=0.205 + allreduce_s(workers, 10**6),
            use=IDLE,
            sweep=tuple((workers, size, allreduce_s(workers, size)) for size in sizes),
        )

    fitted = fit(scenario, [took(2), took(3), took(4)])
    for one in [project(fitted, took(8)), project(fitted, took(16))]:
        assert one.error == pytest.approx(0.0, abs=0.02)
        assert one.covered


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[ShapedWorld]:
    if reason := why_not():
        pytest.skip(f"{reason} (CI runs it as root)")
    with ShapedWorld(16, rate_bits_per_s=20e6, nursery=nursery) as world:
        yield world


def check(found: list[Point]) -> None:
    """Check the figures to reach, on the points that count; skip for a count that has none."""
    print("\n".join(lines_of(found)))
    errors = {workers: mean_error(found, workers) for workers in TO_REACH}
    for workers, error in errors.items():
        assert error is None or error <= TO_REACH[workers], lines_of(found)
    counted = [one for one in found if not one.measured.void]
    assert sum(one.covered for one in counted) >= 0.9 * len(counted), lines_of(found)
    for workers, error in errors.items():
        if error is None:
            void = {one.measured.void for one in found if one.measured.workers == workers}
            pytest.skip(
                f"no point of {workers} ranks counts ({'; '.join(sorted(void))}); it runs on a "
                "machine that is less busy"
            )


@pytest.mark.ranks
def test_few_real_ranks_foretell_many(world: ShapedWorld) -> None:
    check([one for scenario in QUICK for one in compare(world, scenario, few=(2, 4), steps=3)])


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.ranks
def test_few_real_ranks_foretell_many_in_many_ways(world: ShapedWorld) -> None:
    check([one for scenario in WIDE for one in compare(world, scenario)])

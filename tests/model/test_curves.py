"""Scaling curves and the laws fitted to them."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.model.curves import (
    Curve,
    Law,
    amdahl_fraction,
    draw_curves,
    fit_law,
    gain,
    gustafson_fraction,
)
from farandole.model.measured import measure
from farandole.model.statistics import Estimate
from farandole.study.records import Cell, Launch
from tests.model.build import make_study, noisy, repeated, table_launch, timed_launch


def curves_of(launches: list[Launch], **options: object) -> tuple[Curve, ...]:
    return draw_curves(measure(make_study(launches))[0], **options)  # type: ignore[arg-type]


def test_weak_scaling_of_three_counts() -> None:
    launches = [
        timed_launch(Cell(workers=n, batch=32), t) for n, t in ((1, 0.1), (2, 0.11), (4, 0.16))
    ]
    (curve,) = curves_of(launches)
    assert (curve.scaling, curve.batch, curve.unit) == ("weak", 32, "samples/s")
    assert [point.throughput.value for point in curve.points] == pytest.approx(
        [320, 64 / 0.11, 800]
    )
    speedups = [point.speedup.value for point in curve.points if point.speedup]
    assert speedups == pytest.approx([1.0, 2 * 0.1 / 0.11, 2.5])
    efficiencies = [point.efficiency.value for point in curve.points if point.efficiency]
    assert efficiencies == pytest.approx([1.0, 0.1 / 0.11, 0.625])
    assert [point.ideal_throughput for point in curve.points] == pytest.approx([320, 640, 1280])
    assert curve.best_workers == 4
    assert curve.main


def test_one_grid_serves_both_kinds_and_no_cell_is_lost() -> None:
    launches = [
        timed_launch(Cell(workers=n, batch=batch), 0.1) for n in (1, 2) for batch in (16, 32)
    ]
    found = {(curve.scaling, curve.batch): curve for curve in curves_of(launches)}
    assert set(found) == {("weak", 16), ("weak", 32), ("strong", 32)}
    strong = found["strong", 32].points
    assert [(point.workers, point.batch) for point in strong] == [(1, 32), (2, 16)]


@pytest.mark.parametrize("asked", ["strong", "weak"])
def test_the_main_curve_is_of_the_kind_that_was_asked_for(asked: str) -> None:
    launches = [timed_launch(Cell(workers=n, batch=b), 0.1) for n in (1, 2) for b in (16, 32)]
    assert curves_of(launches, prefer=asked)[0].scaling == asked


def test_groups_have_their_own_curves() -> None:
    launches = [
        timed_launch(Cell(workers=n, batch=8, params=(("model", model),)), 0.1)
        for model in ("a", "b")
        for n in (1, 2)
    ]
    assert [curve.label for curve in curves_of(launches)] == ["model=a", "model=b"]


def test_intervals_come_from_launches() -> None:
    rng = np.random.default_rng(3)
    one, two = Cell(workers=1, batch=8), Cell(workers=2, batch=8)
    launches = repeated(one, noisy(rng, 0.1, 0.01, 5)) + repeated(two, noisy(rng, 0.11, 0.01, 5))
    (curve,) = curves_of(launches)
    speedup = curve.points[1].speedup
    assert speedup is not None
    assert speedup.low is not None
    assert speedup.high is not None
    assert speedup.low < speedup.value < speedup.high
    assert speedup.value == pytest.approx(
        curve.points[1].throughput.value / curve.points[0].throughput.value
    )
    base = curve.points[0].speedup
    assert base is not None
    assert (base.low, base.high) == (1.0, 1.0)


def test_without_one_worker_the_smallest_count_is_the_baseline_and_said() -> None:
    launches = [timed_launch(Cell(workers=n, batch=8), 0.1) for n in (2, 4)]
    (curve,) = curves_of(launches)
    assert curve.baseline_workers == 2
    assert curve.points[1].ideal_speedup == 2.0
    assert "Relative to 2 workers" in curve.sentence


def test_one_cell_is_one_point() -> None:
    (curve,) = curves_of([timed_launch(Cell(workers=2, batch=8), 0.1)])
    assert len(curve.points) == 1
    assert curve.amdahl is None
    assert "there is no curve yet" in curve.sentence


def test_void_cells_have_no_speedup() -> None:
    launches = [timed_launch(Cell(workers=n, batch=8), 0.1) for n in (1, 2, 4)]
    (curve,) = curves_of(launches, void={Cell(workers=4, batch=8): "because"})
    assert curve.points[2].speedup is None
    assert curve.points[2].efficiency is None
    assert not curve.points[2].valid
    assert curve.points[2].why == "because"
    assert curve.best_workers == 2


def test_today_is_on_no_curve() -> None:
    launches = [timed_launch(Cell(workers=n, batch=8, threads=1), 0.1) for n in (1, 2)]
    launches.append(timed_launch(Cell(workers=1, batch=8, threads=8, today=True), 0.05))
    (curve,) = curves_of(launches)
    assert not any(point.cell.today for point in curve.points)


def test_fewer_hosts_win_at_equal_workers() -> None:
    launches = [
        timed_launch(Cell(workers=1, batch=8), 0.1),
        timed_launch(Cell(workers=2, batch=8, hosts=2), 0.2),
        timed_launch(Cell(workers=2, batch=8, hosts=1), 0.1),
    ]
    curve, _ = curves_of(launches)
    assert [(point.workers, point.cell.hosts) for point in curve.points] == [(1, 1), (2, 1)]


def test_each_further_placement_has_its_point_on_a_curve_of_its_own() -> None:
    shapes = [(1, 1), (2, 1), (8, 1), (2, 2), (8, 2), (8, 4)]
    launches = [timed_launch(Cell(workers=w, batch=8, hosts=h), 0.1) for w, h in shapes]
    main, *others = curves_of(launches)
    assert [point.cell.placement for point in main.points] == ["1x1", "1x2", "1x8"]
    assert main.label == "weak scaling"
    assert [[point.cell.placement for point in curve.points] for curve in others] == [
        ["1x1", "2x1", "2x4"],
        ["1x1", "4x2"],
    ]
    assert {curve.label for curve in others} == {"more hosts"}


def test_times_of_jobs_are_enough_for_a_curve() -> None:
    launches = [table_launch(Cell(workers=n), job_s=t) for n, t in ((1, 100.0), (4, 40.0))]
    (curve,) = curves_of(launches)
    assert curve.unit == "jobs/s"
    assert curve.points[1].speedup is not None
    assert curve.points[1].speedup.value == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # Step times at 1, 2, 4 workers, batch per worker fixed.
        ({1: [0.1], 2: [0.1], 4: [0.1]}, 4),
        ({1: [0.1], 2: [0.25], 4: [0.5]}, 1),
        ({1: [0.1], 2: [0.1], 4: [0.199]}, 2),
        # Faster by 10 % on average, but launches scatter more than that.
        ({1: [0.1, 0.1, 0.1], 2: [0.14, 0.18, 0.23]}, 1),
        ({1: [0.1, 0.101, 0.099], 2: [0.15, 0.151, 0.149]}, 2),
    ],
)
def test_the_count_to_use(times: dict[int, list[float]], expected: int) -> None:
    launches = [one for n, ts in times.items() for one in repeated(Cell(workers=n, batch=8), ts)]
    best = gain(measure(make_study(launches))[0])
    assert best is not None
    assert best.cell.workers == expected


def _exactly(value: float) -> Estimate:
    return Estimate(value=value, low=None, high=None)


@pytest.mark.parametrize("serial", [0.0, 0.05, 0.3, 1.0])
def test_the_laws_find_their_own_fraction(serial: float) -> None:
    workers = [2.0, 4.0, 8.0]
    amdahl = [1 / (serial + (1 - serial) / number) for number in workers]
    gustafson = [number - serial * (number - 1) for number in workers]
    assert amdahl_fraction(workers, amdahl) == pytest.approx(serial)
    assert gustafson_fraction(workers, gustafson) == pytest.approx(serial)


def test_one_point_is_karp_and_flatts_metric() -> None:
    # (1/S - 1/N) / (1 - 1/N) of 6.8x on 8: Karp and Flatt 1990.
    expected = (1 / 6.8 - 1 / 8) / (1 - 1 / 8)
    assert amdahl_fraction([8.0], [6.8]) == pytest.approx(expected)


def test_amdahls_sentence_names_the_limit() -> None:
    found = fit_law("amdahl", [1.0, 4.0], [_exactly(1.0), _exactly(1 / (0.05 + 0.95 / 4))])
    assert found is not None
    assert found.limit == pytest.approx(20.0)
    assert found.sentence == (
        "5 % of the work does not get shorter with more workers: by Amdahl's law the speedup "
        "stays below 20x."
    )


@pytest.mark.parametrize("law", ["amdahl", "gustafson"])
def test_more_than_linear_and_no_gain_are_said(law: Law) -> None:
    for speedup, words in ((10.56, "no serial part"), (0.9, "nothing")):
        found = fit_law(law, [8.0], [_exactly(speedup)])
        assert found is not None
        assert words in found.sentence
    assert fit_law(law, [1.0], [_exactly(1.0)]) is None


def test_the_interval_turns_round() -> None:
    speedup = Estimate(value=3.0, low=2.8, high=3.2)
    found = fit_law("amdahl", [4.0], [speedup])
    assert found is not None
    fraction = found.serial_fraction
    assert fraction.low == pytest.approx(amdahl_fraction([4.0], [3.2]))
    assert fraction.high == pytest.approx(amdahl_fraction([4.0], [2.8]))
    assert fraction.low is not None
    assert fraction.high is not None
    assert fraction.low < fraction.value < fraction.high

"""Speed by workers with its laws, by batch, and by processes x threads."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.model.analyse import analyse
from farandole.model.curves import (
    BatchSweep,
    Curve,
    Law,
    SplitTable,
    amdahl_fraction,
    draw_curves,
    fit_law,
    gain,
    gustafson_fraction,
    recommend,
    split_cores,
)
from farandole.model.measured import measure
from farandole.model.statistics import Estimate
from farandole.study.records import Cell, Launch
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    noisy,
    repeated,
    table_launch,
    timed_launch,
)


def curves_of(launches: list[Launch], **options: object) -> tuple[Curve, ...]:
    return draw_curves(measure(make_study(launches))[0], **options)


def launches_of(*times: float, batch: int = 8) -> list[Launch]:
    """Return a launch at 1, 2, 4, ... workers by step times."""
    return [timed_launch(Cell(workers=2**n, batch=batch), time) for n, time in enumerate(times)]


def test_weak_scaling_of_three_counts() -> None:
    (curve,) = curves_of(launches_of(0.1, 0.11, 0.16, batch=32))
    assert (curve.scaling, curve.batch, curve.unit) == ("weak", 32, "samples/s")
    assert (curve.best_workers, curve.main) == (4, True)
    found = [(p.throughput.value, p.speedup.value, p.efficiency.value) for p in curve.points]
    assert np.array(found).T.tolist() == [
        pytest.approx([320, 64 / 0.11, 800]),
        pytest.approx([1.0, 2 * 0.1 / 0.11, 2.5]),
        pytest.approx([1.0, 0.1 / 0.11, 0.625]),
    ]
    assert [point.ideal_throughput for point in curve.points] == pytest.approx([320, 640, 1280])


@pytest.mark.parametrize("asked", ["strong", "weak"])
def test_one_grid_serves_both_kinds_and_the_one_asked_for_is_main(asked: str) -> None:
    launches = [timed_launch(Cell(workers=n, batch=b), 0.1) for n in (1, 2) for b in (16, 32)]
    curves = curves_of(launches, scaling=asked)
    found = {(curve.scaling, curve.batch): curve for curve in curves}
    assert set(found) == {("weak", 16), ("weak", 32), ("strong", 32)}
    assert [(p.workers, p.batch) for p in found["strong", 32].points] == [(1, 32), (2, 16)]
    assert curves[0].scaling == asked


def test_intervals_come_from_launches() -> None:
    rng = np.random.default_rng(3)
    one, two = Cell(workers=1, batch=8), Cell(workers=2, batch=8)
    launches = repeated(one, noisy(rng, 0.1, 0.01, 5)) + repeated(two, noisy(rng, 0.11, 0.01, 5))
    (base, point) = curves_of(launches)[0].points
    assert point.speedup.low < point.speedup.value < point.speedup.high
    assert point.speedup.value == pytest.approx(point.throughput.value / base.throughput.value)
    assert (base.speedup.low, base.speedup.high) == (1.0, 1.0)


def test_without_one_worker_the_smallest_count_is_the_baseline_and_said() -> None:
    (curve,) = curves_of(launches_of(0.1, 0.1, 0.1)[1:])
    assert (curve.baseline_workers, curve.points[1].ideal_speedup) == (2, 2.0)
    assert "Relative to 2 workers" in curve.sentence


def test_void_cells_have_no_speedup_and_one_process_is_on_no_curve() -> None:
    today = timed_launch(Cell(workers=1, batch=8, threads=8, today=True), 0.05)
    void = {Cell(workers=4, batch=8): "because"}
    (curve,) = curves_of([*launches_of(0.1, 0.1, 0.1), today], void=void)
    last = curve.points[2]
    assert (last.speedup, last.efficiency, last.valid, last.why) == (None, None, False, "because")
    assert curve.best_workers == 2
    assert not any(point.cell.today for point in curve.points)


def test_each_further_placement_has_its_point_on_a_curve_of_its_own() -> None:
    shapes = [(1, 1), (2, 2), (2, 1), (8, 1), (8, 2), (8, 4)]
    launches = [timed_launch(Cell(workers=w, batch=8, hosts=h), 0.1) for w, h in shapes]
    main, *others = curves_of(launches)
    assert [point.cell.placement for point in main.points] == ["1x1", "1x2", "1x8"]
    assert main.label == "weak scaling"
    found = [[point.cell.placement for point in curve.points] for curve in others]
    assert found == [["1x1", "2x1", "2x4"], ["1x1", "4x2"]]
    assert {curve.label for curve in others} == {"more hosts"}


def test_times_of_jobs_are_enough_for_a_curve() -> None:
    launches = [table_launch(Cell(workers=n), job_s=t) for n, t in ((1, 100.0), (4, 40.0))]
    (curve,) = curves_of(launches)
    assert curve.unit == "jobs/s"
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
    assert gain(measure(make_study(launches))[0]).cell.workers == expected


@pytest.mark.parametrize(
    ("speeds", "time", "money", "balance"),
    [
        ({1: 100.0, 2: 190.0, 4: 200.0}, 4, 1, 2),
        ({1: 100.0, 2: 108.0}, 2, 1, 1),
        ({1: 100.0, 2: 199.0, 4: 396.0}, 4, 4, 4),
        ({1: 100.0, 2: 150.0, 4: 152.0}, 2, 1, 2),
        ({2: 50.0}, 2, 2, 2),
    ],
)
def test_one_rule_recommends(speeds: dict[int, float], time: int, money: int, balance: int) -> None:
    found = [recommend(speeds, prefer) for prefer in ("time", "money", "balance")]
    assert found == [time, money, balance]


def epoch_launch(cell: Cell, epoch_s: float, steps: int = 10) -> Launch:
    """A launch of one epoch in which each worker made so many steps."""
    made = make_steps(epoch_s / steps, steps, begin_s=100.0, samples=8)
    epochs = ((100.0, 100.0 + epoch_s + 1e-6),)
    ranks = [make_rank(n, made, epochs=epochs, dataset_size=2000) for n in range(cell.workers)]
    return make_launch(cell, ranks, purpose="epoch", wall_s=epoch_s + 2.0)


def test_an_epoch_that_does_not_shrink_is_what_counts() -> None:
    # 10 steps of 8 samples on every worker, whatever their number: twice the samples per second.
    one, two = (Cell(workers=n, batch=8, threads=1) for n in (1, 2))
    info = analyse(make_study([epoch_launch(one, 1.0), epoch_launch(two, 1.05)]))
    assert info.curves[0].unit == "epochs/s"
    assert info.answer.workers == 1
    assert info.answer.headline.startswith("Use 1 worker: 2 workers reach only 0.95x")
    assert (
        "This speedup is of the time per epoch; samples/s disagree with it."
        in info.answer.sentences
    )
    # With half the steps on each of two workers both say the same.
    info = analyse(make_study([epoch_launch(one, 1.0), epoch_launch(two, 0.52, steps=5)]))
    assert info.curves[0].unit == "samples/s"


# Laws


def exactly(value: float) -> Estimate:
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
    assert amdahl_fraction([8.0], [6.8]) == pytest.approx((1 / 6.8 - 1 / 8) / (1 - 1 / 8))


def test_amdahls_sentence_names_the_limit() -> None:
    found = fit_law("amdahl", [1.0, 4.0], [exactly(1.0), exactly(1 / (0.05 + 0.95 / 4))])
    assert found.limit == pytest.approx(20.0)
    assert found.sentence == (
        "5 % of the work does not get shorter with more workers: by Amdahl's law the speedup "
        "stays below 20x."
    )


@pytest.mark.parametrize("law", ["amdahl", "gustafson"])
def test_more_than_linear_and_no_gain_are_said(law: Law) -> None:
    for speedup, words in (
        (10.56, "no serial part"),
        (0.9, "none of" if law == "amdahl" else "nothing"),
    ):
        assert words in fit_law(law, [8.0], [exactly(speedup)]).sentence
    assert fit_law(law, [1.0], [exactly(1.0)]) is None


def test_the_interval_turns_round() -> None:
    speedup = Estimate(value=3.0, low=2.8, high=3.2)
    fraction = fit_law("amdahl", [4.0], [speedup]).serial_fraction
    assert fraction.low == pytest.approx(amdahl_fraction([4.0], [3.2]))
    assert fraction.high == pytest.approx(amdahl_fraction([4.0], [2.8]))
    assert fraction.low < fraction.value < fraction.high


# Batches


def sweeps_of(launches: list[Launch]) -> tuple[BatchSweep, ...]:
    return analyse(make_study(launches)).batch_sweeps


def test_the_smallest_batch_that_is_as_fast_is_best() -> None:
    # 80, 160, 199, 200 samples/s: a rise that ends at 32, within 3 %.
    rates = {8: 80.0, 16: 160.0, 32: 199.0, 64: 200.0}
    launches = [timed_launch(Cell(workers=1, batch=b), b / rate) for b, rate in rates.items()]
    (sweep,) = sweeps_of(launches)
    assert sweep.best == 32
    assert [point.throughput.value for point in sweep.points] == pytest.approx([*rates.values()])
    assert sweep.sentence == "Batch 32 is enough: 199 samples/s, 100 % of what batch 64 reaches."


def test_a_clearly_slower_batch_is_not_best_although_it_is_close() -> None:
    launches = repeated(Cell(workers=1, batch=32), [0.1600, 0.1601, 0.1599])
    launches += repeated(Cell(workers=1, batch=64), [0.3140, 0.3141, 0.3139])
    assert sweeps_of(launches)[0].best == 64


def test_a_batch_that_does_not_fit_is_in_the_sweep_with_its_reason() -> None:
    launches = [timed_launch(Cell(workers=1, batch=batch), 0.1) for batch in (8, 16)]
    assert "still rises at batch 16" in sweeps_of(launches)[0].sentence
    launches.append(make_launch(Cell(workers=1, batch=2048), outcome="out_of_memory"))
    (sweep,) = sweeps_of(launches)
    assert (sweep.points[-1].throughput, sweep.points[-1].failed) == (None, "out of memory")
    assert sweep.best == 16
    assert sweep.sentence.endswith("Batch 2048 has no figure (out of memory).")


def test_utilisation_against_batch() -> None:
    launches = [
        table_launch(Cell(workers=1, batch=batch), {"gpu_utilisation": share})
        for batch, share in ((128, 0.20), (1024, 0.54))
    ]
    (sweep,) = sweeps_of(launches)
    assert [point.gpu for point in sweep.points] == [0.20, 0.54]
    assert sweep.sentence == "GPU utilisation is 20 % at batch 128 and 54 % at batch 1024."


# Processes x threads


def tables_of(*cells: Cell, step_s: float = 0.1) -> tuple[SplitTable, ...]:
    return split_cores(measure(make_study([timed_launch(cell, step_s) for cell in cells]))[0])


def test_the_best_split_of_the_cores() -> None:
    rates = {(1, 8): 60.0, (2, 4): 80.0, (4, 2): 100.0, (8, 1): 90.0}
    launches = [
        timed_launch(Cell(workers=n, threads=threads, batch=64 // n), 64 / rate)
        for (n, threads), rate in rates.items()
    ]
    (table,) = split_cores(measure(make_study(launches))[0])
    assert (table.best, table.label) == ((4, 2), "global batch 64")
    assert [(point.workers, point.threads) for point in table.points] == list(rates)
    assert table.sentence == (
        "4 processes x 2 threads is best: 100 samples/s, 1.67x as fast as 1 x 8."
    )


def test_equal_threads_are_no_table_and_one_process_is_only_a_row() -> None:
    cells = [Cell(workers=n, threads=1, batch=8) for n in (1, 2)]
    cells.append(Cell(workers=1, threads=8, batch=8, today=True))
    assert tables_of(*cells) == ()
    (table,) = tables_of(*cells, Cell(workers=1, threads=2, batch=8))
    assert [point.today for point in table.points] == [False, False, True]


def test_splits_with_a_batch_per_worker_share_a_table() -> None:
    splits = [(1, 4), (2, 2), (4, 1)]
    (table,) = tables_of(*(Cell(workers=n, threads=t, batch=8) for n, t in splits))
    assert table.label == "batch 8"
    assert [(point.workers, point.threads) for point in table.points] == splits

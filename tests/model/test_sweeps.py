"""Throughput against batch, and by processes x threads."""

from __future__ import annotations

import pytest

from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.sweeps import BatchSweep, split_cores
from farandole.study.records import Cell, Launch
from tests.model.build import make_launch, make_study, repeated, table_launch, timed_launch


def sweeps_of(launches: list[Launch]) -> tuple[BatchSweep, ...]:
    return analyse(make_study(launches)).batch_sweeps


def test_the_smallest_batch_that_is_as_fast_is_best() -> None:
    # 80, 160, 199, 200 samples/s: a rise that ends at 32, within 3 %.
    launches = [
        timed_launch(Cell(workers=1, batch=batch), batch / rate)
        for batch, rate in ((8, 80.0), (16, 160.0), (32, 199.0), (64, 200.0))
    ]
    (sweep,) = sweeps_of(launches)
    assert sweep.best == 32
    assert [point.throughput.value for point in sweep.points if point.throughput] == pytest.approx(
        [80, 160, 199, 200]
    )
    assert sweep.sentence == "Batch 32 is enough: 199 samples/s, 100 % of what batch 64 reaches."


def test_a_clearly_slower_batch_is_not_best_although_it_is_close() -> None:
    launches = repeated(Cell(workers=1, batch=32), [0.1600, 0.1601, 0.1599])
    launches += repeated(Cell(workers=1, batch=64), [0.3140, 0.3141, 0.3139])
    (sweep,) = sweeps_of(launches)
    assert sweep.best == 64


def test_a_sweep_that_still_rises_says_so() -> None:
    launches = [timed_launch(Cell(workers=1, batch=batch), 0.1) for batch in (8, 16)]
    assert "still rises at batch 16" in sweeps_of(launches)[0].sentence


def test_a_batch_that_does_not_fit_is_in_the_sweep_with_its_reason() -> None:
    launches = [timed_launch(Cell(workers=1, batch=batch), 0.1) for batch in (8, 16)]
    launches.append(make_launch(Cell(workers=1, batch=2048), outcome="out_of_memory"))
    (sweep,) = sweeps_of(launches)
    assert sweep.points[-1].throughput is None
    assert sweep.points[-1].failed == "out of memory"
    assert sweep.best == 16
    assert sweep.sentence.endswith("Batch 2048 has no figure (out of memory).")


def test_one_sweep_per_worker_count_and_none_of_one_batch() -> None:
    launches = [timed_launch(Cell(workers=n, batch=b), 0.1) for n in (1, 2) for b in (8, 16)]
    launches.append(timed_launch(Cell(workers=4, batch=8), 0.1))
    assert [sweep.workers for sweep in sweeps_of(launches)] == [1, 2]


def test_utilisation_against_batch() -> None:
    launches = [
        table_launch(Cell(workers=1, batch=batch), {"gpu_utilisation": share})
        for batch, share in ((128, 0.20), (1024, 0.54))
    ]
    (sweep,) = sweeps_of(launches)
    assert [point.gpu for point in sweep.points] == [0.20, 0.54]
    assert sweep.sentence == "GPU utilisation is 20 % at batch 128 and 54 % at 1024."


def test_the_best_split_of_the_cores() -> None:
    rates = {(1, 8): 60.0, (2, 4): 80.0, (4, 2): 100.0, (8, 1): 90.0}
    launches = [
        timed_launch(Cell(workers=n, threads=threads, batch=64 // n), 64 / rate)
        for (n, threads), rate in rates.items()
    ]
    (table,) = split_cores(measure(make_study(launches))[0])
    assert table.best == (4, 2)
    assert [(point.workers, point.threads) for point in table.points] == list(rates)
    assert table.label == "global batch 64"
    assert table.sentence == (
        "4 processes x 2 threads is best: 100 samples/s, 1.67x as fast as 1 x 8."
    )


def test_equal_threads_are_no_table_and_today_is_only_a_row() -> None:
    cells = [Cell(workers=n, threads=1, batch=8) for n in (1, 2)]
    today = Cell(workers=1, threads=8, batch=8, today=True)
    launches = [timed_launch(cell, 0.1) for cell in (*cells, today)]
    assert split_cores(measure(make_study(launches))[0]) == ()
    launches.append(timed_launch(Cell(workers=1, threads=2, batch=8), 0.1))
    (table,) = split_cores(measure(make_study(launches))[0])
    assert [point.today for point in table.points] == [False, False, True]


def test_splits_with_a_batch_per_worker_share_a_table() -> None:
    launches = [
        timed_launch(Cell(workers=workers, threads=threads, batch=8), 0.1)
        for workers, threads in ((1, 4), (2, 2), (4, 1))
    ]
    cells, _ = measure(make_study(launches))
    (table,) = split_cores(cells)
    assert table.label == "batch 8"
    assert [(point.workers, point.threads) for point in table.points] == [(1, 4), (2, 2), (4, 1)]

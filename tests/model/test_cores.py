"""Processes x threads."""

from __future__ import annotations

from farandole.model.cores import split_cores
from farandole.model.measured import measure
from farandole.study.records import Cell
from tests.model.build import make_study, timed_launch


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
    assert table.sentence == ("4 processes x 2 threads is best: 100 samples/s, 1.67 times 1 x 8.")


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

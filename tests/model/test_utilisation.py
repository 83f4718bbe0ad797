"""Utilisation by rank, over time."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.model.measured import measure
from farandole.model.utilisation import utilisation_series, utilise
from farandole.study.records import Cell, Launch
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    make_utilisation,
    table_launch,
    timed_launch,
)


def launch_of(*cpus: list[float], threads: int | None = 2, **changes: object) -> Launch:
    ranks = [
        make_rank(
            number,
            make_steps(1.0, 20, begin_s=103.0),
            utilisation=make_utilisation(cpu),
            peak_memory_bytes=(number + 1) * 10**9,
            **changes,
        )
        for number, cpu in enumerate(cpus)
    ]
    return make_launch(Cell(workers=len(cpus), threads=threads), ranks, begin_s=100.0)


def test_the_mean_begins_with_the_first_step_and_is_a_share_of_the_threads() -> None:
    # The first step ends 4 s after the launch's begin; three samples before do not count.
    cells, _ = measure(
        make_study([launch_of([9.0, 9.0, 9.0, 1.0, 2.0], [0.0, 0.0, 0.0, 2.0, 2.0])])
    )
    row = utilise(cells[0])
    assert row is not None
    assert [cpu for _, cpu, _, _ in row.by_rank] == pytest.approx([0.75, 1.0])
    assert row.cpu == pytest.approx(0.875)
    assert row.memory_bytes == 2e9
    assert row.gpu is None
    assert row.energy_j is None


def test_unknown_threads_count_as_one() -> None:
    cells, _ = measure(make_study([launch_of([1.5, 1.5, 1.5, 1.5], threads=None)]))
    row = utilise(cells[0])
    assert row is not None
    assert row.cpu == pytest.approx(1.5)


def test_energy_is_the_sum_of_what_ranks_spent() -> None:
    ranks = [
        make_rank(
            n,
            make_steps(1.0),
            utilisation=make_utilisation([1.0, 1.0], gpu=0.5, energy_j=[5.0, 9.0]),
        )
        for n in (0, 1)
    ]
    cells, _ = measure(make_study([make_launch(Cell(workers=2), ranks)]))
    row = utilise(cells[0])
    assert row is not None
    assert row.energy_j == pytest.approx(8.0)
    assert row.gpu == pytest.approx(0.5)


def test_a_table_may_state_utilisation() -> None:
    cells, _ = measure(make_study([table_launch(Cell(workers=1), {"gpu_utilisation": 0.2})]))
    row = utilise(cells[0])
    assert row is not None
    assert row.gpu == pytest.approx(0.2)


def test_quiet_launches_come_before_busy_ones() -> None:
    quiet, busy = launch_of([1.0] * 4, threads=1), launch_of([0.2] * 4, threads=1)
    noisy = make_launch(busy.cell, busy.ranks, begin_s=100.0, busy=True)
    cells, _ = measure(make_study([noisy, quiet]))
    row = utilise(cells[0])
    assert row is not None
    assert row.cpu == pytest.approx(1.0)
    cells, _ = measure(make_study([noisy]))
    row = utilise(cells[0])
    assert row is not None
    assert row.cpu == pytest.approx(0.2)


def test_nothing_sampled_is_no_row() -> None:
    cells, _ = measure(make_study([timed_launch(Cell(workers=2), 0.1)]))
    assert utilise(cells[0]) is None
    assert utilisation_series(cells[0]) == ()


def test_series_are_thinned_and_keep_their_ends() -> None:
    values = np.linspace(0.0, 2.0, 5000).tolist()
    values[100] = np.nan
    cells, _ = measure(make_study([launch_of(values)]))
    (series,) = utilisation_series(cells[0])
    assert len(series.time_s) == 200
    assert (series.time_s[0], series.time_s[-1]) == (1.0, 5000.0)
    assert series.cpu[-1] == pytest.approx(1.0)
    assert set(series.gpu) == {None}

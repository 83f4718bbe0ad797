"""Where a step's time goes, when it is known where it went; and what workers used."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.model.measured import measure
from farandole.model.split import StepSplit, split_step, waiting_for_slowest
from farandole.model.utilisation import UtilisationRow, utilisation_series, utilise
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

STEPS = 40


def two_ranks(*, late_s: float = 0.02, hosts: tuple[str, str] = ("here", "here")) -> Launch:
    """Steps of 100 ms: 10 data, 60 compute, 25 exposed, 5 optimizer; rank 1 ready later."""
    ends = 100.0 + np.cumsum(np.full(STEPS, 0.1))
    ranks = []
    for number, (late, exposed) in enumerate(((0.0, 0.025), (late_s, 0.025 - late_s))):
        steps = make_steps(
            0.1,
            STEPS,
            data_s=0.010,
            optimizer_s=0.005,
            exposed_s=exposed,
            communication_s=exposed + 0.015,
            ready_s=ends - 0.030 + late,
            samples=8.0,
        )
        ranks.append(make_rank(number, steps, host=hosts[number]))
    return make_launch(Cell(workers=2, batch=8), ranks)


def split_of(*launches: Launch) -> StepSplit | None:
    return split_step(measure(make_study(launches))[0][0])


def total(found: StepSplit) -> float:
    return sum(part for part in found.parts().values() if part is not None)


def test_the_parts_of_a_step_are_found_and_add_up() -> None:
    found = split_of(two_ranks())
    assert (found.step_s, found.data_s, found.optimizer_s) == pytest.approx((0.1, 0.010, 0.005))
    # Rank 0 waits 20 ms for rank 1, rank 1 for nobody: 10 ms on average, 5 ms transfer on both.
    assert (found.waiting_s, found.transfer_s, found.exposed_s) == pytest.approx(
        (0.010, 0.005, 0.015)
    )
    assert found.hidden_s == pytest.approx(0.015)
    assert list(found.parts()) == ["data", "compute", "transfer", "waiting", "optimizer"]
    assert total(found) == pytest.approx(0.1)
    assert (found.slowest_rank, found.slowest_share) == (1, pytest.approx(1.0))
    assert dict(found.compute_by_rank_s) == pytest.approx({0: 0.060, 1: 0.080})


@given(
    parts=st.lists(st.lists(st.floats(-0.01, 0.3), min_size=2, max_size=2), min_size=4, max_size=4)
)
def test_the_parts_never_exceed_the_step(parts: list[list[float]]) -> None:
    ranks = []
    for number, (data, exposed, optimizer, ready) in enumerate(zip(*parts, strict=True)):
        steps = make_steps(
            0.1,
            STEPS,
            data_s=abs(data),
            exposed_s=abs(exposed),
            optimizer_s=abs(optimizer),
            ready_s=np.arange(STEPS) + ready,
        )
        ranks.append(make_rank(number, steps))
    found = split_of(make_launch(Cell(workers=2, batch=8), ranks))
    assert total(found) == pytest.approx(found.step_s)
    assert min(part for part in found.parts().values() if part is not None) >= -1e-12
    assert found.others_wait <= 1
    assert min(seconds for _, seconds in found.compute_by_rank_s) >= 0


def test_waiting_never_exceeds_what_was_exposed() -> None:
    launch = two_ranks()
    far = make_rank(1, make_steps(0.1, STEPS, exposed_s=0.001, ready_s=np.full(STEPS, 1e6)))
    launch = make_launch(launch.cell, [launch.ranks[0], far])
    waiting = waiting_for_slowest(launch, np.arange(5, 10))
    assert waiting[0].tolist() == pytest.approx([0.025] * 5)
    assert waiting[1].tolist() == pytest.approx([0.0] * 5)


def test_across_hosts_waiting_is_not_measured_and_exposed_is() -> None:
    found = split_of(two_ranks(hosts=("one", "two")))
    assert (found.waiting_s, found.transfer_s, found.slowest_rank) == (None, None, None)
    assert found.exposed_s == found.parts()["transfer"] == pytest.approx(0.015)
    assert total(found) == pytest.approx(0.1)


def test_what_was_not_measured_is_none_and_its_time_is_computes() -> None:
    ranks = [make_rank(number, make_steps(0.1, STEPS)) for number in (0, 1)]
    found = split_of(make_launch(Cell(workers=2), ranks))
    assert (found.data_s, found.optimizer_s, found.exposed_s) == (None, None, None)
    assert (found.transfer_s, found.waiting_s, found.hidden_s) == (None, None, None)
    assert found.compute_s == pytest.approx(0.1)
    assert split_of(table_launch(Cell(workers=2, batch=8), step_s=0.1)) is None


def test_a_validation_between_epochs_does_not_enter() -> None:
    durations, data = [0.1] * STEPS, [0.01] * STEPS
    durations[20], data[20] = 30.0, 29.0
    launch = make_launch(Cell(workers=1), [make_rank(0, make_steps(durations, data_s=data))])
    assert split_of(launch).data_s == pytest.approx(0.01)


# Utilisation


def launch_of(*cpus: list[float], threads: int | None = 2, **changes: object) -> Launch:
    ranks = [
        make_rank(
            number,
            make_steps(1.0, 20, begin_s=103.0),
            utilisation=make_utilisation(cpu),
            peak_memory_bytes=(number + 1) * 10**9,
        )
        for number, cpu in enumerate(cpus)
    ]
    return make_launch(
        Cell(workers=len(cpus), threads=threads), ranks, **({"begin_s": 100.0} | changes)
    )


def use_of(*launches: Launch) -> UtilisationRow | None:
    return utilise(measure(make_study(launches))[0][0])


def test_the_mean_begins_with_the_first_step_and_is_a_share_of_the_threads() -> None:
    # The first step ends 4 s after the launch's begin; three samples before do not count.
    row = use_of(launch_of([9.0, 9.0, 9.0, 1.0, 2.0], [0.0, 0.0, 0.0, 2.0, 2.0]))
    assert [cpu for _, cpu, _, _ in row.by_rank] == pytest.approx([0.75, 1.0])
    assert (row.cpu, row.memory_bytes) == (pytest.approx(0.875), 2e9)
    assert (row.gpu, row.energy_j) == (None, None)
    # Unknown threads count as one.
    assert use_of(launch_of([1.5] * 4, threads=None)).cpu == pytest.approx(1.5)


def test_a_table_may_state_utilisation() -> None:
    assert use_of(table_launch(Cell(workers=1), {"gpu_utilisation": 0.2})).gpu == 0.2


def test_series_are_thinned_and_keep_their_ends() -> None:
    values = np.linspace(0.0, 2.0, 5000).tolist()
    values[100] = np.nan
    cells, _ = measure(make_study([launch_of(values)]))
    (series,) = utilisation_series(cells[0])
    assert (len(series.time_s), series.time_s[0], series.time_s[-1]) == (200, 1.0, 5000.0)
    assert series.cpu[-1] == pytest.approx(1.0)
    assert set(series.gpu) == {None}
    cells, _ = measure(make_study([timed_launch(Cell(workers=2), 0.1)]))
    assert (utilise(cells[0]), utilisation_series(cells[0])) == (None, ())

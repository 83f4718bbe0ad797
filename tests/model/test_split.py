"""Where a step's time goes, when it is known where it went."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.model.measured import measure
from farandole.model.split import StepSplit, split_step, waiting_for_slowest
from farandole.study.records import Cell, Launch
from tests.model.build import make_launch, make_rank, make_steps, make_study, table_launch

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


def split_of(*launches: Launch) -> StepSplit:
    found = split_step(measure(make_study(launches))[0][0])
    assert found is not None
    return found


def test_the_parts_of_a_step_are_found_and_add_up() -> None:
    found = split_of(two_ranks())
    assert found.step_s == pytest.approx(0.1)
    assert found.data_s == pytest.approx(0.010)
    assert found.optimizer_s == pytest.approx(0.005)
    # Rank 0 waits 20 ms for rank 1, rank 1 for nobody: 10 ms on average, 5 ms transfer on both.
    assert found.waiting_s == pytest.approx(0.010)
    assert found.transfer_s == pytest.approx(0.005)
    assert found.exposed_s == pytest.approx(0.015)
    assert found.hidden_s == pytest.approx(0.015)
    parts = found.parts()
    assert list(parts) == ["data", "compute", "transfer", "waiting", "optimizer"]
    assert sum(part for part in parts.values() if part is not None) == pytest.approx(0.1)


def test_the_rank_that_others_wait_for_is_named() -> None:
    found = split_of(two_ranks())
    assert found.slowest_rank == 1
    assert found.slowest_share == pytest.approx(1.0)
    compute = dict(found.compute_by_rank_s)
    assert compute[0] == pytest.approx(0.060)
    assert compute[1] == pytest.approx(0.080)


def test_waiting_never_exceeds_what_was_exposed() -> None:
    launch = two_ranks()
    clocks_apart = [
        make_rank(0, launch.ranks[0].steps),
        make_rank(1, make_steps(0.1, STEPS, exposed_s=0.001, ready_s=np.full(STEPS, 1e6))),
    ]
    waiting = waiting_for_slowest(make_launch(launch.cell, clocks_apart), np.arange(5, 10))
    assert waiting is not None
    assert waiting[0].tolist() == pytest.approx([0.025] * 5)
    assert waiting[1].tolist() == pytest.approx([0.0] * 5)


def test_across_hosts_waiting_is_not_measured_and_exposed_is() -> None:
    found = split_of(two_ranks(hosts=("one", "two")))
    assert found.waiting_s is None
    assert found.transfer_s is None
    assert found.slowest_rank is None
    assert found.exposed_s == pytest.approx(0.015)
    assert found.parts()["transfer"] == pytest.approx(0.015)
    assert sum(part for part in found.parts().values() if part is not None) == pytest.approx(0.1)


def test_what_was_not_measured_is_none_and_its_time_is_computes() -> None:
    ranks = [make_rank(number, make_steps(0.1, STEPS)) for number in (0, 1)]
    found = split_of(make_launch(Cell(workers=2), ranks))
    assert (found.data_s, found.optimizer_s, found.exposed_s) == (None, None, None)
    assert (found.transfer_s, found.waiting_s, found.hidden_s) == (None, None, None)
    assert found.compute_s == pytest.approx(0.1)


def test_one_worker_communicates_nothing() -> None:
    steps = make_steps(0.1, STEPS, data_s=0.02)
    found = split_of(make_launch(Cell(workers=1), [make_rank(0, steps)]))
    assert (found.exposed_s, found.transfer_s, found.waiting_s, found.hidden_s) == (0, 0, 0, 0)
    assert found.compute_s == pytest.approx(0.08)


def test_a_validation_between_epochs_does_not_enter() -> None:
    durations = [0.1] * STEPS
    data = [0.01] * STEPS
    durations[20], data[20] = 30.0, 29.0
    launch = make_launch(Cell(workers=1), [make_rank(0, make_steps(durations, data_s=data))])
    assert split_of(launch).data_s == pytest.approx(0.01)


def test_figures_without_steps_have_no_split() -> None:
    cells, _ = measure(make_study([table_launch(Cell(workers=2, batch=8), step_s=0.1)]))
    assert split_step(cells[0]) is None

"""Communication per cell, and what workers of a host cost each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.model.analyse import analyse
from farandole.model.communication import (
    Communication,
    bus_bandwidth,
    calibration,
    communicate,
    contention_rows,
    contention_s,
    derived_communication_s,
    link_peak,
    quiet,
)
from farandole.model.measured import measure
from farandole.study.records import Apart, Cell, Launch, Link
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    timed_launch,
)


def found_of(
    launches: list[Launch], link: Link | None = None, spec: dict[str, object] | None = None
) -> Communication | None:
    """Return the communication of the cell with most workers."""
    cells, _ = measure(make_study(launches))
    return communicate(cells[-1], cells, None, link or Link(), spec or {})


def test_formulas() -> None:
    assert derived_communication_s(40.0, 46.0, 2) == pytest.approx(17.0)
    assert bus_bandwidth(8e9, 2.0, 4) == pytest.approx(6e9)


def test_the_transfer_is_what_the_rank_that_waited_least_saw() -> None:
    times = (0.050, 0.020)
    ranks = [
        make_rank(
            number,
            make_steps(0.1, communication_s=seconds),
            gradient_bytes_per_step=40_000_000,
            bytes_sent={"gradients": 40_000_000 * 40, "buffers": 4000, "control": 40},
        )
        for number, seconds in enumerate(times)
    ]
    link = Link(peak_bytes_per_s=4e9)
    found = found_of([make_launch(Cell(workers=2, batch=8), ranks)], link)
    assert found is not None
    assert found.measured_s == pytest.approx(0.020)
    # 2 (N-1)/N is 1 on two workers.
    assert found.bus_bytes_per_s == pytest.approx(2e9)
    assert found.utilisation == pytest.approx(0.5)
    assert found.total_bytes_by_kind == {
        "gradients": 2 * 40_000_000 * 40,
        "buffers": 8000,
        "control": 80,
    }
    assert found.bytes_by_kind["buffers"] == pytest.approx(200.0)


def test_derived_at_a_fixed_batch_per_worker() -> None:
    launches = [
        timed_launch(Cell(workers=1, batch=8), 0.10),
        timed_launch(Cell(workers=4, batch=8), 0.13),
    ]
    found = found_of(launches, spec={"dataset_size": 3200})
    assert found is not None
    assert found.derived_s == pytest.approx(0.03)
    # 3,200 samples are 100 steps at a global batch of 32.
    assert found.derived_epoch_s == pytest.approx(3.0)
    assert found.derived_bus_bytes_per_s == pytest.approx(1.5 * 4000 / 0.03)


def test_derived_at_a_fixed_global_batch() -> None:
    launches = [
        timed_launch(Cell(workers=1, batch=32), 0.40),
        timed_launch(Cell(workers=4, batch=8), 0.13),
    ]
    found = found_of(launches)
    assert found is not None
    assert found.derived_s == pytest.approx(0.03)
    assert found.derived_epoch_s is None


def test_a_negative_derivation_has_no_bandwidth() -> None:
    launches = [
        timed_launch(Cell(workers=1, batch=8), 0.10),
        timed_launch(Cell(workers=2, batch=8), 0.09),
    ]
    found = found_of(launches)
    assert found is not None
    assert found.derived_s == pytest.approx(-0.01)
    assert found.derived_bus_bytes_per_s is None


def test_without_one_worker_nothing_is_derived() -> None:
    found = found_of([timed_launch(Cell(workers=n, batch=8), 0.1) for n in (2, 4)])
    assert found is not None
    assert found.derived_s is None
    assert found.measured_s is None
    assert found.gradient_bytes == 4000


def test_one_worker_and_a_bare_table_have_no_communication() -> None:
    assert found_of([timed_launch(Cell(workers=1, batch=8), 0.1)]) is None
    assert found_of([table_launch(Cell(workers=2), throughput=3.0)]) is None


def test_parameters_of_a_table_are_four_bytes_each() -> None:
    launches = [
        table_launch(
            Cell(workers=n, batch=32), {"parameters": 1e6, "dataset_size": 6400.0}, epoch_s=t
        )
        for n, t in ((1, 20.0), (2, 12.0))
    ]
    found = found_of(launches)
    assert found is not None
    assert found.gradient_bytes == 4_000_000
    assert found.derived_epoch_s == pytest.approx(2.0)
    # 100 steps of 4 MB in 2 s.
    assert found.derived_bus_bytes_per_s == pytest.approx(0.2e9)


def test_the_sweep_of_the_link_is_in_bus_bandwidths() -> None:
    link = Link(
        peak_bytes_per_s=8e9, allreduce=((4, 1 << 20, 1e-3), (2, 1 << 20, 1e-3), (2, 8, 0.0))
    )
    points = calibration(link)
    assert [point.workers for point in points] == [2, 4]
    assert points[1].bus_bytes_per_s == pytest.approx(1.5 * (1 << 20) / 1e-3)
    assert points[0].utilisation == pytest.approx((1 << 20) / 1e-3 / 8e9)
    assert calibration(Link()) == ()


def test_times_that_are_not_measured_are_left_out() -> None:
    ranks = [make_rank(n, make_steps(0.1, communication_s=np.nan)) for n in (0, 1)]
    found = found_of([make_launch(Cell(workers=2, batch=8), ranks)])
    assert found is not None
    assert found.measured_s is None
    assert found.bus_bytes_per_s is None


def test_nothing_is_above_the_peak() -> None:
    # An all-reduce of 1 MB in a shared cache, at 10 GB/s, beside long messages at 4.
    link = Link(peak_bytes_per_s=4e9, allreduce=((2, 1_000_000, 1e-4), (2, 8_000_000, 4e-3)))
    assert link_peak(link) == pytest.approx(1e10)
    assert [point.utilisation for point in calibration(link)] == pytest.approx([1.0, 0.2])
    assert link_peak(Link(allreduce=link.allreduce)) is None


ONE = Cell(workers=1, threads=1, batch=32)

TWO = replace(ONE, workers=2)

APART = Apart(
    cell=TWO,
    computing_alone_s=0.08,
    computing_together_s=0.10,
    update_alone_s=0.02,
    update_together_s=0.03,
    loaded_alone_per_s=900.0,
    loaded_together_per_s=700.0,
)


def test_contention_is_what_a_step_takes_longer_with_all_at_once() -> None:
    assert contention_s([APART], TWO) == pytest.approx(0.03)
    assert contention_s([replace(APART, update_alone_s=None, update_together_s=None)], TWO) == (
        pytest.approx(0.02)
    )
    assert contention_s([APART], ONE) is None
    assert contention_s([replace(APART, computing_together_s=None)], TWO) is None


def test_what_others_disturbed_does_not_count() -> None:
    busy = replace(APART, foreign_share=0.4)
    assert quiet([APART, busy, replace(APART, foreign_share=0.2)])[1:] == (
        replace(APART, foreign_share=0.2),
    )
    assert contention_s([busy], TWO) is None
    cells, _ = measure(make_study([timed_launch(TWO, 0.16)]))
    (row,) = contention_rows([busy], cells)
    assert row.slowdown is row.loaded_alone_per_s is None
    assert row.why_not == "other programs took 40 % of the cores"


def test_it_is_told_from_communication() -> None:
    study = make_study([timed_launch(ONE, 0.1), timed_launch(TWO, 0.16)], apart=(APART,))
    info = analyse(study)
    (communication,) = info.each("communication")
    assert communication.derived_s == pytest.approx(0.06)
    assert communication.contention_s == pytest.approx(0.03)
    (row,) = info.each("contention")
    assert row.slowdown == pytest.approx(0.13 / 0.10)
    assert row.trained_per_s == pytest.approx(32 / 0.16)
    assert (row.cell, row.loaded_together_per_s) == (TWO, 700.0)


def test_why_there_is_none_is_said() -> None:
    missing = Apart(cell=TWO, why_not="torchrun starts the workers, not Farandole")
    info = analyse(make_study([timed_launch(TWO, 0.16)], apart=(missing,)))
    assert (
        "What 2 workers cost each other was not measured: torchrun starts the workers, not "
        "Farandole."
    ) in info.notes
    assert info.each("contention")[0].slowdown is None
    # A launch that was ended while it loaded has figures all the same.
    ended = replace(APART, loaded_together_per_s=None, why_not="it did not end within 60 s")
    (row,) = analyse(make_study([timed_launch(TWO, 0.16)], apart=(ended,))).each("contention")
    assert row.slowdown == pytest.approx(1.3)
    assert row.why_not == "it did not end within 60 s"


def test_a_cell_that_is_gone_is_passed_over() -> None:
    cells, _ = measure(make_study([timed_launch(ONE, 0.1)]))
    assert contention_rows([APART], cells) == ()

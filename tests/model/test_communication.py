"""Communication per cell, and what workers of a host cost each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.model.analyse import ScalingInfo, analyse
from farandole.model.communication import (
    Communication,
    calibration,
    communicate,
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

ONE, TWO, FOUR = (Cell(workers=n, threads=1, batch=8) for n in (1, 2, 4))


def found_of(
    launches: list[Launch], link: Link | None = None, spec: dict[str, object] | None = None
) -> Communication | None:
    """Return the communication of the cell with most workers."""
    cells, _ = measure(make_study(launches, spec=spec or {}))
    return communicate(cells[-1], cells, None, link or Link(), spec or {})


def test_the_transfer_is_what_the_rank_that_waited_least_saw() -> None:
    sent = {"gradients": 40_000_000 * 40, "buffers": 4000, "control": 40}
    ranks = [
        make_rank(
            number,
            make_steps(0.1, communication_s=seconds),
            gradient_bytes_per_step=40_000_000,
            bytes_sent=sent,
        )
        for number, seconds in enumerate((0.050, 0.020))
    ]
    found = found_of([make_launch(TWO, ranks)], Link(peak_bytes_per_s=4e9))
    assert found.measured_s == pytest.approx(0.020)
    # 2 (N-1)/N is 1 on two workers.
    assert found.bus_bytes_per_s == pytest.approx(2e9)
    assert found.utilisation == pytest.approx(0.5)
    assert found.total_bytes_by_kind == {kind: 2 * size for kind, size in sent.items()}
    assert found.bytes_by_kind["buffers"] == pytest.approx(200.0)


def test_derived_at_a_fixed_batch_per_worker() -> None:
    launches = [timed_launch(ONE, 0.10), timed_launch(FOUR, 0.13)]
    found = found_of(launches, spec={"dataset_size": 3200})
    assert found.derived_s == pytest.approx(0.03)
    # 3,200 samples are 100 steps at a global batch of 32.
    assert found.derived_epoch_s == pytest.approx(3.0)
    assert found.derived_bus_bytes_per_s == pytest.approx(1.5 * 4000 / 0.03)
    # A negative derivation has no bandwidth.
    found = found_of([timed_launch(ONE, 0.10), timed_launch(TWO, 0.09)])
    assert found.derived_s == pytest.approx(-0.01)
    assert found.derived_bus_bytes_per_s is None


def test_derived_at_a_fixed_global_batch() -> None:
    found = found_of([timed_launch(replace(ONE, batch=32), 0.40), timed_launch(FOUR, 0.13)])
    assert found.derived_s == pytest.approx(0.03)
    assert found.derived_epoch_s is None


def test_parameters_of_a_table_are_four_bytes_each() -> None:
    stated = {"parameters": 1e6, "dataset_size": 6400.0}
    launches = [
        table_launch(Cell(workers=n, batch=32), stated, epoch_s=t) for n, t in ((1, 20.0), (2, 12))
    ]
    found = found_of(launches)
    assert found.gradient_bytes == 4_000_000
    assert found.derived_epoch_s == pytest.approx(2.0)
    # 100 steps of 4 MB in 2 s.
    assert found.derived_bus_bytes_per_s == pytest.approx(0.2e9)


def test_the_sweep_of_the_link_is_in_bus_bandwidths_and_never_above_its_peak() -> None:
    sizes = ((4, 1 << 20, 1e-3), (2, 1 << 20, 1e-3), (2, 8, 0.0))
    points = calibration(Link(peak_bytes_per_s=8e9, allreduce=sizes))
    assert [point.workers for point in points] == [2, 4]
    assert points[1].bus_bytes_per_s == pytest.approx(1.5 * (1 << 20) / 1e-3)
    assert points[0].utilisation == pytest.approx((1 << 20) / 1e-3 / 8e9)
    assert calibration(Link()) == ()
    # An all-reduce of 1 MB in a shared cache, at 10 GB/s, beside long messages at 4.
    link = Link(peak_bytes_per_s=4e9, allreduce=((2, 1_000_000, 1e-4), (2, 8_000_000, 4e-3)))
    assert link_peak(link) == pytest.approx(1e10)
    assert [point.utilisation for point in calibration(link)] == pytest.approx([1.0, 0.2])
    assert link_peak(Link(allreduce=link.allreduce)) is None


CONTENTION = Apart(
    cell=TWO,
    computing_alone_s=0.08,
    computing_together_s=0.10,
    update_alone_s=0.02,
    update_together_s=0.03,
    loaded_alone_per_s=900.0,
    loaded_together_per_s=700.0,
)


def info_of(**changes: object) -> ScalingInfo:
    launches = [timed_launch(ONE, 0.1), timed_launch(TWO, 0.16)]
    return analyse(make_study(launches, apart=(replace(CONTENTION, **changes),)))


def test_contention_is_told_from_communication() -> None:
    info = info_of()
    (sent,), (row,) = info.each("communication"), info.each("contention")
    assert (sent.derived_s, sent.contention_s) == (pytest.approx(0.06), pytest.approx(0.03))
    assert row.slowdown == pytest.approx(0.13 / 0.10)
    assert row.trained_per_s == pytest.approx(8 / 0.16)
    assert (row.cell, row.loaded_together_per_s) == (TWO, 700.0)


@pytest.mark.parametrize(
    ("changes", "contention_s"),
    [
        ({"update_alone_s": None, "update_together_s": None}, 0.02),
        ({"computing_together_s": None}, None),
        ({"foreign_share": 0.4}, None),
        ({"foreign_share": 0.2}, 0.03),
        ({"why_not": "it did not end within 60 s", "loaded_together_per_s": None}, 0.03),
        ({"cell": FOUR}, None),
    ],
)
def test_what_contention_needs(changes: dict[str, object], contention_s: float | None) -> None:
    (sent,) = info_of(**changes).each("communication")
    assert sent.contention_s == (contention_s and pytest.approx(contention_s))


def test_why_there_is_none_is_said() -> None:
    info = info_of(foreign_share=0.4)
    (row,) = info.each("contention")
    assert row.slowdown is row.loaded_alone_per_s is None
    assert row.why_not == "other programs took 40 % of the cores"
    assert (
        "Contention between 2 workers was not measured: other programs took 40 % of the cores."
    ) in info.notes
    assert quiet([CONTENTION, replace(CONTENTION, foreign_share=0.4)]) == (CONTENTION,)

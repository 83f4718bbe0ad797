"""What workers of a host cost each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.model.analyse import analyse
from farandole.model.apart import apart_rows, contention_s, quiet
from farandole.model.measured import measure
from farandole.study.records import Apart, Cell
from tests.model.build import make_study, timed_launch

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
    (row,) = apart_rows([busy], cells)
    assert row.slowdown is row.loaded_alone_per_s is None
    assert row.why_not == "other programs took 40% of the cores"


def test_it_is_told_from_communication() -> None:
    study = make_study([timed_launch(ONE, 0.1), timed_launch(TWO, 0.16)], apart=(APART,))
    info = analyse(study)
    (communication,) = info.communication
    assert communication.derived_s == pytest.approx(0.06)
    assert communication.contention_s == pytest.approx(0.03)
    (row,) = info.apart
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
    assert info.apart[0].slowdown is None
    # A launch that was ended while it loaded has figures all the same.
    ended = replace(APART, loaded_together_per_s=None, why_not="it did not end within 60 s")
    (row,) = analyse(make_study([timed_launch(TWO, 0.16)], apart=(ended,))).apart
    assert row.slowdown == pytest.approx(1.3)
    assert row.why_not == "it did not end within 60 s"


def test_a_cell_that_is_gone_is_passed_over() -> None:
    cells, _ = measure(make_study([timed_launch(ONE, 0.1)]))
    assert apart_rows([APART], cells) == ()

"""Utilisation over time, and whether images come in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.transfer.utilisation import answer_utilisation, binned, input_words
from farandole.model.info.utilisation import UtilisationSeries
from farandole.study.records import Cell
from tests.labs.transfer.build import found


def test_a_row_per_rank_and_a_line_per_rank_that_has_a_core() -> None:
    answered = answer_utilisation(found())
    assert [row[:2] for row in answered.tables[0].rows] == [
        *((1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3))
    ]
    lines = {row[0] for row in answered.figures[0].table.rows}
    assert lines == {"1 worker, rank 0", "2 workers, rank 0", "2 workers, rank 1"}


def test_many_samples_become_means_of_equal_times() -> None:
    series = UtilisationSeries(
        cell=Cell(workers=1),
        label="1",
        launch="0001",
        rank=0,
        time_s=tuple(range(101)),
        cpu=tuple(time / 100 for time in range(101)),
        gpu=(None,) * 101,
        memory_bytes=(None,) * 101,
    )
    points = binned(series, bins=10)
    assert [time for time, _ in points] == pytest.approx([5 + 10 * place for place in range(10)])
    # The first part has the samples 0.00 to 0.09, the last one 0.90 to 1.00.
    assert (points[0][1], points[-1][1]) == pytest.approx((0.045, 0.95))


def test_input_that_keeps_up_and_input_that_does_not() -> None:
    info = found().studies["workers"]
    split = replace(info.splits[0], step_s=1.0, data_s=0.04)
    quick, slow = (
        input_words(replace(info, splits=(replace(split, data_s=share),)))[0]
        for share in (0.04, 0.3)
    )
    assert quick.startswith("Images come in time: at most 4 % of a step")
    assert slow.startswith("Training is held up by its input: 30 % of a step")

"""A synthetic study is like any other: the store reads it, the model finds its formulas."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.bench.plan import Shape
from farandole.bench.synthetic_study import step_s, write_study
from farandole.model.analyse import analyse
from farandole.model.pace import pace
from farandole.study.records import Study

_SMALL = Shape(workers=(1, 2), batches=(32, 64), widths=(1,), repeats=2, steps_per_rank=60)


def test_the_size_that_the_issue_names() -> None:
    assert (Shape().cells, Shape().steps) == (200, 200_000)


def test_what_is_written_has_the_size_that_was_promised(tmp_path: Path) -> None:
    write_study(tmp_path / "s", _SMALL)
    found = Study.load(tmp_path / "s")
    assert len(found.cells) == _SMALL.cells == 4
    assert len(found.launches) == _SMALL.launches == 12
    recorded = sum(len(rank.steps) for launch in found.launches for rank in launch.ranks)
    assert recorded == _SMALL.steps == 60 * 3 * 2 * 3
    assert found.complete


def test_the_model_finds_what_the_formulas_say(tmp_path: Path) -> None:
    write_study(tmp_path / "s", _SMALL)
    found = Study.load(tmp_path / "s")
    for launch in found.launches:
        # The median of 60 figures that scatter by 2 % is known to 4 x 1.25 x 2 % / sqrt(60).
        assert pace(launch).step_s == pytest.approx(step_s(launch.cell), rel=0.015)
    info = analyse(found)
    assert info.answer.void is None
    cells = {(cell.workers, cell.batch): cell for cell in found.cells}
    weak = [curve for curve in info.curves if curve.scaling == "weak"]
    assert {curve.batch for curve in weak} == {32, 64}
    for curve in weak:
        speedup = curve.points[-1].speedup
        assert speedup is not None
        expected = 2 * step_s(cells[1, curve.batch]) / step_s(cells[2, curve.batch])
        assert speedup.value == pytest.approx(expected, rel=0.015)

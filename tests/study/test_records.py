"""Records as they show themselves."""

from __future__ import annotations

from dataclasses import replace

from farandole.study.records import Cell
from tests.model.build import make_study, timed_launch

ONE, TWO = Cell(workers=1, batch=8), Cell(workers=2, batch=8)


def test_a_study_names_itself_in_a_line() -> None:
    study = make_study([timed_launch(cell, 0.1, steps=1000) for cell in (ONE, TWO, TWO)], path="d")
    assert repr(study) == "<Study 'a study': 2 cells, 3 launches, in 'd'>"
    begun = replace(study, launches=study.launches[:1], complete=False)
    assert repr(begun) == "<Study 'a study': 1 cell, 1 launch, not complete, in 'd'>"


def test_a_launch_shows_what_became_of_it_and_not_its_steps() -> None:
    shown = repr(timed_launch(TWO, 0.1))
    assert "outcome='stopped'" in shown
    assert "end_s" not in shown

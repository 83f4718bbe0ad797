"""Names, and what is drawn first."""

from __future__ import annotations

from dataclasses import replace

from farandole.report import series
from tests.report.builders import cell_row, comparison, curve, study


def test_names_that_were_there_get_a_number() -> None:
    assert series.unlike(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (2)", "a (2) (2)", "a (3)"]


def test_main_curves_come_first_and_kinds_are_named_where_both_are_there() -> None:
    other = curve(main=False, scaling="strong", batch=32)
    info = replace(study(), curves=(other, curve()))
    names = [named.name for named in series.curves([info])]
    assert names == ["weak scaling, resnet18, batch 64", "strong scaling, resnet18, batch 32"]


def test_a_curve_in_another_unit_is_left_out() -> None:
    info = replace(study(), curves=(curve(), replace(curve(), unit="jobs/s")))
    assert len(series.curves([info])) == 1


def test_cells_of_main_curves_are_drawn_before_others() -> None:
    info = study()
    main = {point.cell for point in info.curves[0].points}
    far = [cell_row(replace(info.cells[0].cell, batch=size)) for size in (1, 2, 3, 4)]
    info = replace(info, cells=(*far, *info.cells))
    found = series.foremost(series.labelled([info], lambda one: one.cells), 3)
    assert {named.item.cell for named in found} == main


def test_what_is_not_drawn_is_said() -> None:
    assert series.left_out(3, 3, "cells") == ""
    assert series.left_out(3, 5, "cells") == " 3 of 5 cells are drawn; the table has all."


def test_labels_of_studies_differ() -> None:
    assert [info.label for info in series.studies(comparison(("a", "a")))] == ["a", "a (2)"]
    assert [info.label for info in series.studies(comparison(("", "b")))] == ["study", "b"]

"""What a lab's report contains."""

from __future__ import annotations

from dataclasses import replace

from farandole.report.lab.charts import lines
from farandole.report.lab.contents import contents
from tests.report.lab.builders import lab, oddly, speed_table


def test_a_table_that_figures_share_stands_once() -> None:
    first, second, _ = contents(lab()).sections
    assert not any(first.under(figure) for figure in first.figures)
    assert [table.name for table in first.further] == ["speedup"]
    assert all(second.under(figure) for figure in second.figures)
    assert [table.name for table in second.further] == ["speedup"]


def test_names_of_files_are_safe_and_differ() -> None:
    report = lab()
    first = report.answered[0]
    other = replace(speed_table(), title="another", name="../speed/up")
    same = replace(speed_table(), title="another")
    drawn = lines("speedup", "again", "", same, x="workers", y="speedup", series="batch")
    changed = replace(first, tables=(*first.tables, other), figures=(*first.figures, drawn))
    found = contents(replace(report, answered=(changed, *report.answered[1:])))
    figures = [figure.name for figure in found.figures()]
    assert figures[:3] == ["speedup", "epoch", "speedup-2"]
    assert len(set(figures)) == len(figures)
    tables = {table.name: table for table in found.tables()}
    assert tables["speed-up"].title == "another"
    assert tables["speedup"].title == "Speedup by workers"
    assert tables["speedup-2"].title == "another"


def test_a_figure_without_anything_to_draw_is_named() -> None:
    report = lab()
    first = report.answered[0]
    empty = replace(first.figures[0], spec={}, title="Speedup of nothing")
    found = contents(
        replace(report, answered=(replace(first, figures=(empty,)), *report.answered[1:]))
    )
    assert found.undrawn == ("Speedup of nothing",)
    assert "Speedup of nothing" not in [figure.title for figure in found.figures()]


def test_hostile_names_are_names_of_files() -> None:
    for table in contents(lab(oddly(0))).tables():
        assert table.name.replace("-", "").replace("_", "").isalnum()
        assert len(table.name) < 100

"""One table in five formats."""

from __future__ import annotations

import csv
import io

from farandole.format import seconds, times, whole
from farandole.model.statistics import Estimate
from farandole.report.document import Document, Section, Tables
from farandole.report.render import page
from farandole.report.table import (
    Column,
    Table,
    to_csv,
    to_latex,
    to_lines,
    to_markdown,
)

TABLE = Table(
    name="example",
    title="An <example>",
    columns=(
        Column(key="name", title="name", text=True),
        Column(key="workers", title="workers", show=whole),
        Column(key="speedup", title="speedup", show=times, interval=True),
        Column(key="step_s", title="step", show=seconds),
    ),
    rows=(
        ("a|b", 1, Estimate(value=1.0, low=1.0, high=1.0), 0.0125),
        ("=x", 2, Estimate(value=1.8312, low=1.79, high=1.874), None),
        ("<i>", 4, Estimate(value=2.5, low=None, high=None), float("nan")),
    ),
    notes=("Mind the_gap.",),
)


def test_csv_has_full_figures_and_three_columns_for_an_interval() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows == [
        ["name", "workers", "speedup", "speedup_low", "speedup_high", "step_s"],
        ["a|b", "1", "1.0", "1.0", "1.0", "0.0125"],
        ["'=x", "2", "1.8312", "1.79", "1.874", ""],
        ["<i>", "4", "2.5", "", "", ""],
    ]


def test_markdown() -> None:
    assert to_markdown(TABLE).splitlines() == [
        "| name | workers | speedup | step |",
        "|---|--:|--:|--:|",
        r"| a\|b | 1 | 1.00x | 12.5 ms |",
        "| =x | 2 | 1.83x (1.79 to 1.87) | not measured |",
        r"| \<i\> | 4 | 2.50x | not measured |",
        "",
        r"Mind the\_gap.",
    ]


def test_latex() -> None:
    lines = to_latex(TABLE).splitlines()
    assert lines[1] == r"\begin{tabular}{lrrr}"
    assert r"a\textbar{}b & 1 & 1.00x & 12.5 ms \\" in lines
    assert r"\textless{}i\textgreater{} & 4 & 2.50x & not measured \\" in lines
    assert lines[-2] == r"\end{tabular}"


def test_html_escapes_and_says_where_the_rest_is() -> None:
    shown = Section(key="one", title="One", blocks=(Tables((TABLE,)),))
    written = page(Document(title="t", openings=(), sections=(shown,)), scripts="")
    assert "<bdi>a|b</bdi>" in written
    assert "An &lt;example&gt;" in written
    assert "&lt;i&gt;" in written
    assert "<i>" not in written
    assert TABLE.first(1).notes[-1] == "1 of 3 rows; tables/example.csv has all."


def test_lines_are_aligned_words_left_and_figures_right() -> None:
    assert to_lines(TABLE) == [
        "  name  workers               speedup          step",
        "  a|b         1                 1.00x       12.5 ms",
        "  =x          2  1.83x (1.79 to 1.87)  not measured",
        "  <i>         4                 2.50x  not measured",
    ]


def test_a_missing_interval_leaves_three_cells_empty() -> None:
    column = Column(key="y", title="y", interval=True)
    table = Table(name="t", title="t", columns=(column,), rows=((None,),))
    assert to_csv(table) == "y,y_low,y_high\n,,\n"
    assert to_lines(table) == ["             y", "  not measured"]

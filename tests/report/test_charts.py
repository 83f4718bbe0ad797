"""Charts that are drawn from tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import altair as alt
import pytest

from farandole.format import whole
from farandole.report import charts
from farandole.report.charts import bars, lines
from farandole.report.document import Figure
from farandole.report.table import Column, Table
from tests.labs.report_builders import alone, lab, speed_table
from tests.report.builders import near
from tests.report.test_figures import rows


def figure_of(table: Table, **options: Any) -> Figure:
    return lines("name", "title", "caption.", table, x="workers", **options)


def bars_of(table: Table, **options: Any) -> Figure:
    return bars("name", "title", "", table, **({"x": "workers", "y": "y"} | options))


def counted(*values: float | None) -> Table:
    """Return figures at 1, 2, 4, ... workers."""
    return Table(
        name="t",
        title="T",
        columns=(
            Column(key="workers", title="workers", show=whole),
            Column(key="y", title="value"),
        ),
        rows=tuple((2**power, value) for power, value in enumerate(values)),
    )


@pytest.mark.parametrize(
    "figure", [figure for one in lab().answered for figure in one.figures], ids=lambda f: f.name
)
def test_every_specification_is_valid(figure: Figure) -> None:
    alt.LayerChart.from_dict(figure.spec)


def test_published_series_are_hollow_and_come_last() -> None:
    drawn = figure_of(speed_table(), y="speedup", series="batch", published=("batch 32",))
    names = list(dict.fromkeys(row["name"] for row in rows(drawn)))
    assert names == ["batch 128", "batch 32"]
    hollow = [layer for layer in drawn.spec["layer"] if layer["mark"].get("style") == "hollow"]
    data = drawn.spec["datasets"][hollow[0]["data"]["name"]]
    assert {row["name"] for row in data} == {"batch 32"}


def test_a_lone_line_from_elsewhere_is_named() -> None:
    table = replace(speed_table(), rows=speed_table().rows[:3])
    for published, legend in (((), None), (("batch 32",), {"title": None, "columns": 1})):
        drawn = figure_of(table, y="speedup", series="batch", published=published)
        assert drawn.spec["layer"][0]["encoding"]["color"]["legend"] == legend


def test_a_figure_without_data_has_no_specification() -> None:
    assert figure_of(counted(None, None), y="y").spec == {}
    assert bars_of(counted()).spec == {}


def test_a_zero_has_no_place_on_a_logarithmic_axis() -> None:
    drawn = figure_of(counted(0.0, 0.5, -1.0), y="y", log=True)
    assert {row["y"] for row in rows(drawn)} == {0.5}
    assert "Zeros cannot be drawn" in drawn.caption
    alt.LayerChart.from_dict(drawn.spec)


@pytest.mark.parametrize(
    ("options", "mark"), [({}, "bar"), ({"zero": False}, "point"), ({"log": True}, "point")]
)
def test_bars_without_zero_are_points(options: dict[str, Any], mark: str) -> None:
    drawn = bars_of(counted(0.5, 0.6), **options)
    assert drawn.spec["layer"][0]["mark"]["type"] == mark


def test_equal_categories_are_not_drawn_over_each_other() -> None:
    drawn = bars_of(replace(counted(0.5, 0.6), rows=((1, 0.5), (1, 0.6))))
    assert [row["category"] for row in rows(drawn)] == ["1", "1 (2)"]


def test_more_lines_than_colours_are_left_to_the_table() -> None:
    table = replace(
        speed_table(),
        rows=tuple((f"batch {n}", w, near(1.0), alone(1.0)) for n in range(10) for w in (1, 2)),
    )
    drawn = figure_of(table, y="speedup", series="batch")
    assert len({row["name"] for row in rows(drawn)}) == 8
    assert drawn.caption == "caption. 8 of 10 lines are drawn; the table has all."
    assert len(drawn.table.rows) == 20


def test_the_ideal_is_linear_between_its_ends_too() -> None:
    # Doublings get equal room on the horizontal axis alone: the line is bent there.
    spec = figure_of(counted(1, 1.9, 3.4, 5.5), y="y", ideal=True).spec
    (dashed,) = (one for one in spec["layer"] if one["mark"].get("style") == "ideal")
    ideal = spec["datasets"][dashed["data"]["name"]]
    assert all(row["x"] == row["y"] for row in ideal)
    assert {2, 4} <= {round(row["x"], 9) for row in ideal}


def test_words_are_drawn_as_boxes_and_empty_cells_are_not() -> None:
    words = [Column(key=key, title=key, text=True) for key in ("step", "first", "other")]
    cells = (("data", "loads the batch of all the other ones", ""), ("update", "a", "b"))
    drawn = charts.boxes(
        "name", "title", "", Table(name="t", title="T", columns=tuple(words), rows=cells)
    )
    alt.LayerChart.from_dict(drawn.spec)
    boxes = drawn.spec["datasets"]["rows0"]
    assert [(row["y"], row["x"]) for row in boxes] == [
        *(("data", "first"), ("update", "first"), ("update", "other"))
    ]
    assert boxes[0]["text"] == "loads the batch of all the other\nones"

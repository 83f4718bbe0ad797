"""The section on more workers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from farandole.report.document import Figure
from farandole.report.projection import (
    next_command,
    projection_figures,
    projection_tables,
    terminal_lines,
    to_json,
)
from farandole.report.render import markdown, page
from farandole.report.study import document
from farandole.report.table import to_lines
from tests.report.builders import ODD, study
from tests.report.projections import projection
from tests.report.test_figures import rows

INFO = replace(study(), projection=projection())


def test_the_page_and_the_markdown_have_all_of_it() -> None:
    found = document(INFO)
    text = markdown(found, picture="png")
    html = page(found, scripts="")
    for part in ("16 workers by the knee.", "The link is taken at its word.", "missed by 9 %"):
        assert part in text
        assert part in html
    assert "figures/projected-time.png" in text
    assert 'id="chart-projected-time"' in html
    assert {table.name for table in found.tables()} >= {"projection", "offers", "fleet"}


def test_a_terminal_shows_the_answer_first_and_the_next_measurement_last() -> None:
    lines = terminal_lines(INFO, folder="a study")
    assert lines[0] == projection().headline
    assert lines[-1] == projection().track_record
    command = next(line for line in lines if line.startswith("  farandole study"))
    assert "-np 1,2,4" in command
    assert "--out 'a study' --" in command
    assert max(len(line) for line in lines[:12]) < 160


def test_what_is_indicative_has_bounds_and_no_value() -> None:
    table = projection_tables(projection())["projection"]
    last = dict(zip((column.key for column in table.columns), table.rows[-1], strict=True))
    assert last["workers"] == 64
    assert last["origin"] == "indicative"
    assert math.isnan(last["time_s"].value)
    bounds = projection().rows[-1].speedup
    assert f"{bounds.low:.1f}x to {bounds.high:.1f}x" in to_lines(table)[-1]


def test_columns_without_figures_are_left_out() -> None:
    bare = replace(projection(), rows=tuple(replace(row, cost=None) for row in projection().rows))
    assert "cost" not in {column.key for column in projection_tables(bare)["projection"].columns}


def test_json_is_strict_and_names_its_schema() -> None:
    found = json.loads(json.dumps(to_json(INFO), allow_nan=False))
    assert (found["schema"], found["kind"]) == (1, "farandole-projection")
    assert found["next"]["command"] == next_command(INFO)
    assert found["rows"][-1]["time_s"]["indicative"] is True
    assert len(found["rows"]) == len(projection().rows)


def test_words_of_users_are_never_markup() -> None:
    for odd in ODD:
        info = replace(study(), projection=projection(word=odd, name=odd))
        html = page(document(info), scripts="")
        assert "<script>window.hacked" not in html
        assert "<img src=x" not in html


def figures(**changes: object) -> dict[str, Figure]:
    made = replace(projection(), **changes)  # type: ignore[arg-type]
    return {one.name: one for one in projection_figures(made, projection_tables(made))}


def test_every_figure() -> None:
    assert set(figures()) == {
        "projected-throughput",
        "projected-time",
        "projected-cost",
        "projected-metric",
        "projected-limits",
        "offers",
    }


def test_without_times_there_is_throughput_alone() -> None:
    bare = tuple(replace(row, time_s=None, cost=None, metric=None) for row in projection().curve)
    assert set(figures(curve=bare, goal=None, offers=())) == {
        "projected-throughput",
        "projected-limits",
    }


def test_measured_points_bands_and_the_ideal_line() -> None:
    found = rows(figures()["projected-throughput"])
    names = {row["name"] for row in found if "name" in row}
    assert {"measured", "10Gbit", "25Gbit"} <= names
    ideal = {row["x"]: row["y"] for row in found if set(row) == {"name", "x", "y"}}
    first = projection().rows[0]
    assert ideal[16] == pytest.approx(16 * first.throughput.value / first.workers)
    band = next(row for row in found if row.get("name") == "10Gbit" and row["x"] == 16)
    assert band["low"] < band["y"] < band["high"]


def test_what_is_indicative_has_a_band_and_no_line() -> None:
    layers = figures()["projected-time"].spec["layer"]
    data = figures()["projected-time"].spec["datasets"]
    line = next(
        one for one in layers if one["mark"]["type"] == "line" and "style" not in one["mark"]
    )
    area = next(one for one in layers if one["mark"]["type"] == "area")
    assert 64 not in {row["x"] for row in data[line["data"]["name"]]}
    assert 64 in {row["x"] for row in data[area["data"]["name"]]}


def test_the_parts_of_the_time_add_up_to_all_of_it() -> None:
    found = [row for row in rows(figures()["projected-limits"]) if "end" in row]
    for name in {row["name"] for row in found}:
        assert max(row["end"] for row in found if row["name"] == name) == pytest.approx(100.0)

"""The section on more workers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from farandole.report.contents import contents
from farandole.report.markdown import document
from farandole.report.page import page
from farandole.report.projection import (
    fleet_table,
    next_command,
    offer_table,
    outlooks,
    shown,
    terminal_lines,
    to_json,
)
from farandole.report.table import to_lines
from tests.report.builders import ODD, study
from tests.report.projections import projection

INFO = replace(study(), projection=projection())


def test_without_a_projection_nothing_is_shown() -> None:
    assert shown(study()) is None
    assert "More workers" not in document(contents(study()), picture="png")


def test_the_page_and_the_markdown_have_all_of_it() -> None:
    found = contents(INFO)
    text = document(found, picture="png")
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
    table = outlooks(projection())
    last = dict(zip((column.key for column in table.columns), table.rows[-1], strict=True))
    assert last["workers"] == 64
    assert last["origin"] == "indicative"
    assert math.isnan(last["time_s"].value)
    bounds = projection().rows[-1].speedup
    assert f"{bounds.low:.1f}x to {bounds.high:.1f}x" in to_lines(table)[-1]


def test_a_fleet_names_the_link_of_its_jobs() -> None:
    table = fleet_table(projection())
    assert table is not None
    assert "25Gbit" in to_lines(table)[-1]


def test_columns_without_figures_are_left_out() -> None:
    bare = replace(projection(), rows=tuple(replace(row, cost=None) for row in projection().rows))
    assert "cost" not in {column.key for column in outlooks(bare).columns}


def test_json_is_strict_and_names_its_schema() -> None:
    found = json.loads(json.dumps(to_json(INFO), allow_nan=False))
    assert (found["schema"], found["kind"]) == (1, "farandole-projection")
    assert found["next"]["command"] == next_command(INFO)
    assert found["rows"][-1]["time_s"]["indicative"] is True
    assert len(found["rows"]) == len(projection().rows)


def test_words_of_users_are_never_markup() -> None:
    for odd in ODD:
        info = replace(study(), projection=projection(word=odd, name=odd))
        html = page(contents(info), scripts="")
        assert "<script>window.hacked" not in html
        assert "<img src=x" not in html
        assert offer_table(info.projection) is not None  # type: ignore[arg-type]

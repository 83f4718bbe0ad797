"""Throughput, speedup and efficiency."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from farandole.model.statistics import Estimate
from farandole.report.charts import scaling
from farandole.report.contents import contents
from tests.report.builders import SINGLE, comparison, curve, speedup, study
from tests.report.charts.drawn import drawn, rows


def test_speedup_rows_are_amdahls() -> None:
    figure = drawn(scaling.speedup([study()]))
    points = {row["x"]: row["y"] for row in rows(figure) if "short" in row}
    assert points == pytest.approx({1: 1.0, 2: speedup(2), 4: speedup(4)})
    two = next(row for row in rows(figure) if row.get("x") == 2 and "text" in row)
    assert two["text"] == "1.85x (1.81 to 1.89)"


def test_throughput_has_its_unit_and_ideal() -> None:
    figure = drawn(scaling.throughput([study()]))
    assert "throughput (samples/s)" in json.dumps(figure.spec)
    ideal = [row["y"] for row in rows(figure) if set(row) == {"name", "x", "y"}]
    assert sorted(set(ideal)) == [SINGLE, 2 * SINGLE, 4 * SINGLE]
    assert figure.table.rows[1][3] == study().curves[0].points[1].throughput


def test_a_point_that_does_not_count_is_in_the_table_without_its_speed() -> None:
    info = study()
    points = list(info.curves[0].points)
    points[2] = replace(points[2], valid=False, why="more ranks than cores")
    info = replace(info, curves=(replace(info.curves[0], points=tuple(points)),))
    figure = drawn(scaling.speedup([info]))
    assert 4 not in {row.get("x") for row in rows(figure)}
    assert figure.table.rows[2][0] == 4
    assert figure.table.rows[2][-1] == "more ranks than cores"
    assert not [cell for cell in figure.table.rows[2] if isinstance(cell, Estimate)]


def test_wide_spans_double_and_narrow_ones_do_not() -> None:
    narrow = json.dumps(drawn(scaling.speedup([study((1, 2, 4))])).spec)
    wide = json.dumps(drawn(scaling.speedup([study((1, 2, 4, 8, 16))])).spec)
    assert '"log"' not in narrow
    assert '"log"' in wide


def test_many_curves_are_drawn_in_part_and_tabulated_whole() -> None:
    more = tuple(curve(batch=2**power, main=power == 5) for power in range(12))
    info = replace(study(), curves=more)
    figure = drawn(scaling.throughput([info]))
    assert len({row["name"] for row in rows(figure) if "short" in row}) == 8
    assert "8 of 12 curves are drawn" in figure.caption
    assert len(figure.table.rows) == 12 * 3
    assert figure.table.rows[0][0].endswith("batch 32")


def test_studies_side_by_side_are_told_apart_by_label() -> None:
    infos = comparison(("laptop", "laptop")).infos
    figure = drawn(scaling.speedup(contents(comparison(("laptop", "laptop"))).infos))
    names = {row["name"] for row in rows(figure) if "short" in row}
    assert len(infos) == len(names) == 2
    assert any(name.startswith("laptop (2), ") for name in names)


def test_points_on_several_hosts_say_where_they_are() -> None:
    info = study()
    points = list(info.curves[0].points)
    points[2] = replace(points[2], cell=replace(points[2].cell, hosts=2))
    info = replace(info, curves=(replace(info.curves[0], points=tuple(points)),))
    figure = drawn(scaling.speedup([info]))
    four = next(row for row in rows(figure) if row.get("x") == 4 and "short" in row)
    assert four["short"].endswith("(2x2)")
    assert four["workers"] == "4 (2x2)"
    assert [column.key for column in figure.table.columns[:2]] == ["workers", "placement"]
    assert [row[1] for row in figure.table.rows] == ["1x1", "1x2", "2x2"]
    # On one host there is nothing to say.
    alone = drawn(scaling.speedup([study()]))
    assert "placement" not in [column.key for column in alone.table.columns]
    assert not any("(" in row["short"] for row in rows(alone) if "short" in row)

"""Every chart: neutral columns, rows that hold what the info holds, and pictures that differ."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from farandole.model.info import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.charts import accuracy, bars, link, marks, scaling, sweep, use
from farandole.report.contents import contents
from farandole.report.figure import Figure, Missing
from tests.report.builders import (
    GRADIENT_BYTES,
    PEAK,
    SINGLE,
    Words,
    bare,
    comparison,
    curve,
    metric_row,
    speedup,
    study,
)

ALL = {
    "throughput",
    "speedup",
    "efficiency",
    "step-split",
    "job-time",
    "bandwidth",
    "bytes",
    "utilisation",
    "calibration",
    "batch-sweep",
    "processes-threads",
    "accuracy-by-epoch",
    "accuracy-by-time",
    "accuracy-at-end",
    "epochs-to-stability",
    "metric-2-by-epoch",
}


def drawn(found: Figure | Missing) -> Figure:
    assert isinstance(found, Figure), found
    return found


def rows(figure: Figure) -> list[dict[str, Any]]:
    """All rows of all data in a specification."""
    return [row for values in figure.spec["datasets"].values() for row in values]


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from nodes(part)


def test_a_full_study_has_every_figure() -> None:
    assert {figure.name for figure in contents(study()).figures()} == ALL
    assert contents(study()).missing == ()


def test_a_bare_study_has_none_and_says_what_would_give_them() -> None:
    found = contents(bare())
    assert list(found.figures()) == []
    assert len(found.missing) == len(ALL) - 1
    assert all(one.hint for one in found.missing)


def test_a_void_study_has_no_figure_of_speed() -> None:
    reason = "Your 2 workers trained 2 separate models."
    found = contents(study(void=reason))
    names = {figure.name for figure in found.figures()}
    assert not names & {"throughput", "speedup", "efficiency"}
    assert found.paste is None
    assert f"Not shown: {reason}" in [one.hint for one in found.missing]


@pytest.mark.parametrize("name", ["<b>", 'x"]', "datum['x']", "a.b[0]", "{{x}}", "\\"])
def test_users_strings_are_never_fields_or_expressions(name: str) -> None:
    words = Words(label=name, param=(name, name), metric=name, loss=name + "2", reason=name)
    for figure in contents(study(words=words)).figures():
        spec = {key: value for key, value in figure.spec.items() if key != "datasets"}
        for node in nodes(spec):
            for key in ("field", "expr", "signal", "test", "calculate", "shorthand"):
                if key in node:
                    assert re.fullmatch(r"[a-z]+", str(node[key])), (figure.name, node)
        keys = {key for row in rows(figure) for key in row}
        assert all(re.fullmatch(r"[a-z]+", key) for key in keys), keys


def test_a_specification_names_no_address() -> None:
    for figure in contents(study()).figures():
        assert "http" not in json.dumps(figure.spec)


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


def test_the_parts_of_a_step_add_up() -> None:
    figure = drawn(bars.step_split([study()]))
    bars_of = [row for row in rows(figure) if row["name"].startswith("2 workers") and "x" in row]
    step_ms = study().splits[1].step_s * 1e3
    assert max(row["end"] for row in bars_of) == pytest.approx(step_ms)
    assert {row["part"] for row in bars_of} >= {"compute", "communication", "optimizer"}


def test_bytes_by_kind_are_in_units() -> None:
    figure = drawn(bars.bytes_by_kind([study()]))
    gradients = [row for row in rows(figure) if row["part"] == "gradients"]
    assert {row["text"] for row in gradients} == {"89.4 MB", "179 MB"}
    assert figure.table.rows[0][1] == 2 * GRADIENT_BYTES


def test_bandwidth_is_in_gigabytes() -> None:
    figure = drawn(link.bandwidth([study()]))
    ways = {row["way"]: row["x"] for row in rows(figure)}
    assert ways == pytest.approx(
        {"measured": PEAK / 2e9, "derived": PEAK / 2.4e9, "peak of the link": PEAK / 1e9}
    )


def test_utilisation_has_at_most_four_panels() -> None:
    figure = drawn(use.utilisation([study((1, 2, 3, 4, 5, 6))]))
    assert len({row["name"] for row in rows(figure)}) == 4
    assert "4 of 6 cells are drawn" in figure.caption
    assert len(use.over_time([study((1, 2))]).rows) == 3 * 40


def test_a_batch_that_failed_is_marked() -> None:
    figure = drawn(sweep.batch_sweep([study()]))
    assert [row["x"] for row in rows(figure) if row.get("why")] == [512]
    assert figure.table.rows[-1][-1].startswith("out of memory")


def test_the_best_split_is_framed() -> None:
    figure = drawn(sweep.split_heatmap([study()]))
    assert {row["cores"] for row in rows(figure) if row["best"]} == {"8 x 1"}


def test_diverged_seeds_leave_no_point() -> None:
    info = study()
    gone = replace(metric_row(4), final=None, diverged=3)
    figure = drawn(accuracy.final([replace(info, metrics=(*info.metrics[:2], gone))]))
    assert len({row["name"] for row in rows(figure)}) == 2
    assert figure.table.rows[2][7] == 3


def test_nan_in_a_metric_is_left_out() -> None:
    info = study()
    first = info.metric_curves[0]
    odd = replace(first.points[3], value=Estimate(value=math.nan, low=math.nan, high=math.nan))
    points = (*first.points[:3], odd, *first.points[4:])
    info = replace(info, metric_curves=(replace(first, points=points), *info.metric_curves[1:]))
    figure = drawn(accuracy.by_epoch([info]))
    assert not [row for row in rows(figure) if row["y"] is None or math.isnan(row["y"])]


def test_names_at_the_ends_only_where_there_is_room() -> None:
    def end(name: str, y: float) -> dict[str, Any]:
        return {"name": name, "x": 4, "y": y}

    assert marks.far_apart([end("a", 1.0), end("b", 4.0)], log=False)
    assert not marks.far_apart([end("a", 3.9), end("b", 4.0)], log=False)
    assert not marks.far_apart([end("a", 1.0)], log=False)


def test_infos_are_not_changed() -> None:
    info = study()
    contents(info)
    assert info == study()
    assert isinstance(info, ScalingInfo)

"""The figures of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from farandole.model.analyse import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report import figures
from farandole.report.document import Figure
from tests.report.builders import (
    cell_row,
    comparison,
    curve,
    label,
    metric_row,
    speedup,
    study,
    with_row,
)


def drawn(name: str, infos: Sequence[ScalingInfo]) -> Figure:
    """Return the figure of this name, and fail where there is none."""
    parts = [one for _, found in figures.sections(infos) for one in found]
    return next(one for one in parts if isinstance(one, Figure) and one.name == name)


def rows(figure: Figure) -> list[dict[str, Any]]:
    """Return all rows of all data in a specification."""
    return [row for values in figure.spec["datasets"].values() for row in values]


def test_speedup_rows_are_amdahls() -> None:
    figure = drawn("speedup", [study()])
    points = {row["x"]: row["y"] for row in rows(figure) if "short" in row}
    assert points == pytest.approx({1: 1.0, 2: speedup(2), 4: speedup(4)})
    two = next(row for row in rows(figure) if row.get("x") == 2 and "text" in row)
    assert two["text"] == "1.85x (1.81 to 1.89)"


def test_both_axes_of_speedup_have_one_scale() -> None:
    layer = drawn("speedup", [study()]).spec["layer"][0]["encoding"]
    assert layer["x"]["scale"] == layer["y"]["scale"]


def test_a_point_that_does_not_count_is_in_the_table_without_its_speed() -> None:
    info = study()
    points = list(info.curves[0].points)
    points[2] = replace(points[2], valid=False, why="more ranks than cores")
    info = replace(info, curves=(replace(info.curves[0], points=tuple(points)),))
    figure = drawn("speedup", [info])
    assert 4 not in {row.get("x") for row in rows(figure)}
    assert figure.table.rows[2][0] == 4
    assert figure.table.rows[2][-1] == "more ranks than cores"
    assert not [cell for cell in figure.table.rows[2] if isinstance(cell, Estimate)]


def test_many_curves_are_drawn_in_part_and_tabulated_whole() -> None:
    more = tuple(curve(batch=2**power, main=power == 5) for power in range(12))
    info = replace(study(), curves=more)
    figure = drawn("speedup", [info])
    assert len({row["name"] for row in rows(figure) if "short" in row}) == 8
    assert "8 of 12 curves are drawn" in figure.caption
    assert len(figure.table.rows) == 12 * 3
    assert figure.table.rows[0][0].endswith("batch 32")


def test_studies_side_by_side_are_told_apart_by_label() -> None:
    infos = comparison(("laptop", "laptop")).infos
    figure = drawn("speedup", figures.studies(comparison(("laptop", "laptop"))))
    names = {row["name"] for row in rows(figure) if "short" in row}
    assert len(infos) == len(names) == 2
    assert any(name.startswith("laptop (2), ") for name in names)


def test_points_on_several_hosts_say_where_they_are() -> None:
    info = study()
    points = list(info.curves[0].points)
    points[2] = replace(points[2], cell=replace(points[2].cell, hosts=2))
    info = replace(info, curves=(replace(info.curves[0], points=tuple(points)),))
    figure = drawn("speedup", [info])
    four = next(row for row in rows(figure) if row.get("x") == 4 and "short" in row)
    assert four["short"].endswith("(2x2)")
    assert four["category"] == "4 (2x2)"
    assert [column.key for column in figure.table.columns[:2]] == ["workers", "placement"]
    assert [row[1] for row in figure.table.rows] == ["1x1", "1x2", "2x2"]
    # On one host there is nothing to say.
    alone = drawn("speedup", [study()])
    assert "placement" not in [column.key for column in alone.table.columns]
    assert not any("(" in row["short"] for row in rows(alone) if "short" in row)


def test_diverged_seeds_leave_no_point() -> None:
    gone = replace(metric_row(4), final=None, diverged=3)
    figure = drawn("accuracy-at-end", [with_row(study(), 2, metrics=(gone,))])
    assert len({row["category"] for row in rows(figure)}) == 2
    assert figure.table.rows[2][7] == 3


def test_the_parts_of_a_step_add_up() -> None:
    figure = drawn("step-split", [study()])
    bars_of = [row for row in rows(figure) if row["name"].startswith("2 workers") and "x" in row]
    step_ms = study().each("split")[1].step_s * 1e3
    assert max(row["end"] for row in bars_of) == pytest.approx(step_ms)
    assert {row["part"] for row in bars_of} >= {"compute", "communication", "optimizer"}


def test_a_batch_that_failed_is_marked() -> None:
    figure = drawn("batch-sweep", [study()])
    assert [row["x"] for row in rows(figure) if row["note"].startswith("out of")] == [512]
    assert figure.table.rows[-1][-1].startswith("out of memory")


def test_the_best_split_is_named() -> None:
    figure = drawn("processes-threads", [study()])
    assert [row["category"] for row in rows(figure) if "best" in row["category"]] == ["8 x 1, best"]


def test_a_step_has_one_bar_per_rank_where_they_are_few() -> None:
    figure = drawn("step-split", [study((1, 2))])
    names = list(dict.fromkeys(row["name"] for row in rows(figure)))
    ends = [name.rpartition(", ")[2] for name in names]
    assert (ends[1:], len(names)) == (["rank 0", "rank 1"], 3)
    assert len(figure.table.rows) == 2
    many = rows(drawn("step-split", [study((1, 8, 16))]))
    assert not any("rank" in row["name"] for row in many)


def test_a_few_bytes_are_no_chart() -> None:
    few = replace(study().rows[1].communication, bytes_by_kind={"control": 84})
    figure = drawn("bytes", [with_row(study((1, 2)), 1, communication=few)])
    assert figure.spec == {}
    assert figure.table.rows[0][1] == 84


def test_utilisation_has_at_most_four_panels() -> None:
    figure = drawn("utilisation", [study((1, 2, 3, 4, 5, 6))])
    assert len({row["name"] for row in rows(figure)}) == 4
    assert "4 of 6 cells are drawn" in figure.caption
    assert len(figures.utilisation_over_time([study((1, 2))]).rows) == 3 * 40


def test_cells_of_main_curves_are_drawn_before_others() -> None:
    info = study()
    main = {label(point.cell) for point in info.curves[0].points}
    far = [cell_row(replace(info.rows[0].cell, batch=size)) for size in (1, 2, 3, 4)]
    info = replace(info, rows=(*far, *info.rows))
    assert figures.foremost(figures.entries([info], "rows"), 3) == main

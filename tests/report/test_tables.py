"""Tables that stand without a figure."""

from __future__ import annotations

from dataclasses import replace

from farandole.model.noise import NoiseRow, NoiseScale
from farandole.report import tables
from farandole.report.table import to_lines
from tests.report.builders import bare, comparison, near, study, with_row


def keys(table: tables.Table) -> list[str]:
    return [column.key for column in table.columns]


def test_launches_left_out_say_why_and_outliers_stay() -> None:
    table = tables.launches_left_out([study()])
    assert table is not None
    why, counts = keys(table).index("why"), keys(table).index("kept")
    assert [row[counts] for row in table.rows] == ["no", "yes, outlier"]
    assert "Last output: rank 1: Killed" in table.rows[0][why]
    assert len(tables.launches([study()]).rows) == 11


def test_what_workers_cost_each_other() -> None:
    info = study()
    table = tables.contention([info])
    assert table is not None
    assert [row[0] for row in table.rows] == [row.label for row in info.each("contention")]
    slower = keys(table).index("slowdown")
    assert table.rows[0][slower] == 1.1
    assert tables.contention([bare()]) is None
    # Why there is no figure is told elsewhere.
    missing = replace(
        info.each("contention")[0], slowdown=None, loaded_alone_per_s=None, why_not="no"
    )
    assert tables.contention([with_row(bare(), 0, contention=missing)]) is None


def test_a_noise_scale_may_have_a_lower_bound_alone() -> None:
    info = study()
    cell = info.rows[1]
    noise = NoiseScale(
        value=None, low=512.0, high=None, trace=3.0, squared_norm=-0.001, measurements=40
    )
    row = NoiseRow(
        cell=cell.cell, label=cell.label, noise=noise, global_batch=64.0, launches=3, buckets=()
    )
    table = tables.noise([with_row(info, 1, noise=row)])
    ((_, value, low, high, *_, steps, launches),) = table.rows
    assert (value, low, high, steps, launches) == (None, 512.0, None, 40, 3)
    assert tables.noise([info]).rows == ()


def test_the_answers_curve_leaves_out_what_does_not_count() -> None:
    info = study()
    points = list(info.curves[0].points)
    points[2] = replace(points[2], valid=False, why="more ranks than cores")
    table = tables.answer_curve(
        replace(info, curves=(replace(info.curves[0], points=tuple(points)),))
    )
    assert table is not None
    assert table.rows[2][keys(table).index("speedup")] is None
    assert table.rows[2][keys(table).index("throughput")] is None
    assert to_lines(table)[3].endswith("more ranks than cores")
    assert tables.answer_curve(replace(info, curves=())) is None


def test_ratios_between_studies_only_where_they_were_not_refused() -> None:
    found = comparison()
    (side,) = tables.comparison(found)
    assert side.notes == (found.refused,)
    given = replace(found, refused=None, ratios=(("b", "a", "2 workers", near(1.5)),))
    _, table = tables.comparison(given)
    assert to_lines(table)[1].split() == ["b", "a", "2", "workers", "1.50x", "(1.47", "to", "1.53)"]


def test_several_hosts_are_in_the_tables() -> None:
    info = study()
    one = info.curves[0]
    placed = [replace(p, cell=replace(p.cell, hosts=min(2, p.workers))) for p in one.points]
    info = replace(
        info,
        curves=(replace(one, points=tuple(placed)),),
        rows=tuple(replace(c, cell=replace(c.cell, hosts=c.cell.workers)) for c in info.rows),
    )
    table = tables.answer_curve(info)
    assert table is not None
    place = [column.key for column in table.columns].index("placement")
    assert [row[place] for row in table.rows] == ["1x1", "2x1", "2x2"]
    assert "hosts" in [column.key for column in tables.cells([info]).columns]
    assert "hosts" not in [column.key for column in tables.cells([study()]).columns]

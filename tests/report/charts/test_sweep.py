"""Batches, and processes x threads."""

from __future__ import annotations

from farandole.report.charts import sweep
from tests.report.builders import study
from tests.report.charts.drawn import drawn, rows


def test_a_batch_that_failed_is_marked() -> None:
    figure = drawn(sweep.batch_sweep([study()]))
    assert [row["x"] for row in rows(figure) if row.get("why")] == [512]
    assert figure.table.rows[-1][-1].startswith("out of memory")


def test_the_best_split_is_framed() -> None:
    figure = drawn(sweep.split_heatmap([study()]))
    assert {row["cores"] for row in rows(figure) if row["best"]} == {"8 x 1"}

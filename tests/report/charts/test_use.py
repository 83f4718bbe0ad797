"""Utilisation."""

from __future__ import annotations

from farandole.report.charts import use
from tests.report.builders import study
from tests.report.charts.drawn import drawn, rows


def test_utilisation_has_at_most_four_panels() -> None:
    figure = drawn(use.utilisation([study((1, 2, 3, 4, 5, 6))]))
    assert len({row["name"] for row in rows(figure)}) == 4
    assert "4 of 6 cells are drawn" in figure.caption
    assert len(use.over_time([study((1, 2))]).rows) == 3 * 40

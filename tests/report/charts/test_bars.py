"""Stacked bars."""

from __future__ import annotations

import pytest

from farandole.report.charts import bars
from tests.report.builders import GRADIENT_BYTES, study
from tests.report.charts.drawn import drawn, rows


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

"""Bandwidth."""

from __future__ import annotations

import pytest

from farandole.report.charts import link
from tests.report.builders import PEAK, study
from tests.report.charts.drawn import drawn, rows


def test_bandwidth_is_in_gigabytes() -> None:
    figure = drawn(link.bandwidth([study()]))
    ways = {row["way"]: row["x"] for row in rows(figure)}
    assert ways == pytest.approx(
        {"measured": PEAK / 2e9, "derived": PEAK / 2.4e9, "peak of the link": PEAK / 1e9}
    )

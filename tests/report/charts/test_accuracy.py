"""Metrics."""

from __future__ import annotations

import math
from dataclasses import replace

from farandole.model.statistics import Estimate
from farandole.report.charts import accuracy
from tests.report.builders import metric_row, study
from tests.report.charts.drawn import drawn, rows


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

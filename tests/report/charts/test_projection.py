"""Projections as figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.report.charts import projection as charts
from farandole.report.figure import Figure
from farandole.report.projection import offer_table, outlooks
from tests.report.builders import study
from tests.report.charts.drawn import rows
from tests.report.projections import projection


def figures(**changes: object) -> dict[str, Figure]:
    made = replace(projection(), **changes)  # type: ignore[arg-type]
    info = replace(study(), projection=made)
    return {one.name: one for one in charts.figures(info, outlooks(made), offer_table(made))}


def test_every_figure() -> None:
    assert set(figures()) == {
        "projected-throughput",
        "projected-time",
        "projected-cost",
        "projected-metric",
        "projected-limits",
        "offers",
    }


def test_without_times_there_is_throughput_alone() -> None:
    bare = tuple(replace(row, time_s=None, cost=None, metric=None) for row in projection().curve)
    assert set(figures(curve=bare, goal=None, offers=())) == {
        "projected-throughput",
        "projected-limits",
    }


def test_measured_points_bands_and_the_ideal_line() -> None:
    found = rows(figures()["projected-throughput"])
    names = {row["name"] for row in found if "name" in row}
    assert {"measured", "10Gbit", "25Gbit"} <= names
    ideal = {row["x"]: row["y"] for row in found if "name" not in row and "text" not in row}
    first = projection().rows[0]
    assert ideal[16] == pytest.approx(16 * first.throughput.value / first.workers)
    band = next(row for row in found if row.get("name") == "10Gbit" and row["x"] == 16)
    assert band["low"] < band["y"] < band["high"]


def test_what_is_indicative_has_a_band_and_no_line() -> None:
    layers = figures()["projected-time"].spec["layer"]
    data = figures()["projected-time"].spec["datasets"]
    line = next(one for one in layers if one["mark"] == {"type": "line"})
    area = next(one for one in layers if one["mark"]["type"] == "area")
    assert 64 not in {row["x"] for row in data[line["data"]["name"]]}
    assert 64 in {row["x"] for row in data[area["data"]["name"]]}


def test_the_parts_of_the_time_add_up_to_all_of_it() -> None:
    found = [row for row in rows(figures()["projected-limits"]) if "end" in row]
    for name in {row["name"] for row in found}:
        assert max(row["end"] for row in found if row["name"] == name) == pytest.approx(100.0)

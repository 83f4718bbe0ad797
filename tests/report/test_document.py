"""The JSON document: strict, its head first, as docs/report.md says."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.model.statistics import Estimate
from farandole.report.document import to_json
from tests.report.builders import comparison, speedup, study

HEAD = ["workers", "speedup", "interval", "accuracy", "limited_by", "void", "next"]


def test_the_answer_is_the_head() -> None:
    found = to_json(study())
    assert next(iter(found)) == "answer"
    assert list(found["answer"]) == HEAD
    assert found["answer"]["workers"] == 2
    assert found["answer"]["speedup"] == pytest.approx(speedup(2))
    assert found["answer"]["void"] is None
    assert (found["schema"], found["kind"]) == (1, "farandole-report")


def test_a_void_study_has_no_speedup_anywhere() -> None:
    found = to_json(study(void="Your 2 workers trained 2 separate models."))
    assert found["answer"]["void"] == "Your 2 workers trained 2 separate models."
    assert found["answer"]["speedup"] is None
    points = found["studies"][0]["curves"][0]["points"]
    assert [point["speedup"] for point in points] == [None] * 3


def test_nan_and_infinity_are_null_in_strict_json() -> None:
    info = study()
    odd = replace(info.cells[0], throughput=Estimate(value=math.nan, low=-math.inf, high=math.inf))
    written = json.dumps(to_json(replace(info, cells=(odd,))), allow_nan=False)
    cell = json.loads(written)["studies"][0]["cells"][0]
    assert cell["throughput"] == {"value": None, "low": None, "high": None}


def test_several_studies() -> None:
    found = to_json(comparison())
    assert [one["label"] for one in found["studies"]] == ["laptop", "cluster"]
    assert found["comparison"]["refused"]
    assert "infos" not in found["comparison"]


def test_the_documentation_names_every_field() -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    found = to_json(comparison())
    names = {*found, *found["answer"], *found["studies"][0], *found["comparison"]}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []

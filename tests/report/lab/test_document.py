"""report.json of a lab: strict, and as docs/labs-report.md says."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.model.statistics import Estimate
from farandole.report.lab import to_json
from tests.report.builders import speedup
from tests.report.lab.builders import lab, oddly


def names_in(value: Any) -> set[str]:
    """Return all names of fields that are ours: not those of questions, studies or machines."""
    free = ("questions", "published", "studies", "tables", "machine")
    found: set[str] = set()
    if isinstance(value, dict):
        for key, part in value.items():
            found.add(key)
            parts = list(part.values()) if key in free and isinstance(part, dict) else [part]
            if key != "machine":
                found |= {name for one in parts for name in names_in(one)}
    elif isinstance(value, list):
        found |= {name for part in value for name in names_in(part)}
    return found


def test_questions_with_their_tables() -> None:
    found = to_json(lab())
    assert (found["schema"], found["kind"], found["lab"]) == (1, "farandole-lab", "tiny")
    assert list(found["questions"]) == ["speedup", "bytes", "enough"]
    first = found["questions"]["speedup"]
    assert first["question"] == "What do more workers bring?"
    assert first["answer"] == ["2 workers: 1.85x.", "4 workers: 3.2x."]
    assert first["table"]["columns"] == ["batch", "workers", "speedup", "epoch_s"]
    row = dict(zip(first["table"]["columns"], first["table"]["rows"][1], strict=True))
    assert row["workers"] == 2
    assert row["speedup"]["value"] == pytest.approx(speedup(2))
    assert list(found["questions"]["bytes"]["tables"]) == ["speedup"]
    assert found["questions"]["enough"]["table"] is None


def test_what_else_is_in_it() -> None:
    found = to_json(lab(size_="quick"))
    assert found["size"] == "quick"
    assert found["headline"] == ["2 workers: 1.85x.", "Gradients: 44.7 MB."]
    assert found["choices"] == [
        {"what": "epochs", "lab": "5", "here": "2", "why": "fits 15 min"},
    ]
    assert found["data"]["skipped"] == ["7.png: not an image", "8.png: empty"]
    assert found["corrections"][0]["shown_by"] == "4.946042 / 4.017061"
    assert found["studies"]["speedup"]["workers"] == 2
    assert found["published"]["tiny_speedup"]["table"]["rows"]
    assert found["machine"]["host"] == "tangram"


def test_strict_json_whatever_the_figures_and_words() -> None:
    report = lab(oddly(0))
    first = report.answered[0]
    table = first.tables[0]
    nan = Estimate(value=math.nan, low=-math.inf, high=math.inf)
    odd = replace(table, rows=((math.nan, math.inf, nan, None),))
    changed = replace(report, answered=(replace(first, tables=(odd,)),))
    read = json.loads(json.dumps(to_json(changed), allow_nan=False))
    (question,) = read["questions"].values()
    assert question["table"]["rows"] == [
        [None, None, {"value": None, "low": None, "high": None}, None]
    ]


def test_the_documentation_names_every_field() -> None:
    text = (Path(__file__).parents[3] / "docs" / "labs-report.md").read_text()
    assert [name for name in sorted(names_in(to_json(lab()))) if f"`{name}`" not in text] == []

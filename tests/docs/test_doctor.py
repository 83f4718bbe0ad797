"""The pages of the doctor's ids, which the site generates from the records of the checks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml

from farandole.doctor.check import checks

DOCS = Path(__file__).parents[2] / "docs"


def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_id_has_a_page_and_a_line_in_the_table() -> None:
    pages, table = hooks().check_pages(), hooks().check_table()
    for one in checks().values():
        assert one.title in pages[f"doctor/{one.id}.md"]
        assert f"[{one.id}](../doctor/{one.id}.md)" in table
    assert "## A script with this mistake" in pages["doctor/FD101.md"]


def test_the_pages_stand_in_the_navigation() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text()
    config = hooks().on_config({"nav": yaml.safe_load(text.partition("\nnav:")[2])})
    (doctor,) = (part["Doctor"] for part in config["nav"] if "Doctor" in part)
    assert doctor[0] == "reference/doctor.md"
    assert {"FD101": "doctor/FD101.md"} in doctor

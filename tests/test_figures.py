"""Figures of the documents are what their scripts draw."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


@pytest.mark.parametrize("script", sorted(FIGURES.glob("*.py")), ids=lambda path: path.stem)
def test_a_figure_is_what_its_script_draws(script: Path) -> None:
    drawn = runpy.run_path(str(script))["draw"]()
    assert script.with_suffix(".svg").read_text(encoding="utf-8") == drawn
    assert ElementTree.fromstring(drawn).tag.endswith("svg")

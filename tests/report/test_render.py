"""Pictures and scripts by vl-convert; charts on paper and on the page look alike."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from farandole.report import render
from farandole.report.charts import DASHES, SHAPES
from farandole.report.render import (
    PARTS,
    SERIES,
    bundle,
    colours,
    page_config,
    paper_config,
    pictures,
)
from farandole.report.study import document
from tests.report.builders import Words, study
from tests.report.test_figures import drawn


def test_a_picture_holds_its_words_as_text() -> None:
    (figure,) = document(study()).extra_figures
    svg = pictures(figure, ("svg",))["svg"].decode()
    for word in ("speedup", "workers", "ideal", "1.85x"):
        assert f">{word}</text>" in svg


def test_hostile_names_stay_text_in_pictures() -> None:
    name = "<script>x</script>"
    figure = drawn("accuracy-by-time", [study(words=Words(metric=name))])
    svg = pictures(figure, ("svg",))["svg"].decode()
    assert "&lt;script&gt;x&lt;/script&gt;" in svg
    assert "<script" not in svg


def test_the_bundle_cannot_end_its_element() -> None:
    script = bundle()
    assert "vegaEmbed" in script
    assert "</script" not in script.lower()
    assert "<!--" not in script


def test_the_bundle_is_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(render, "make_bundle", lambda: made.append("once") or "the script\u2028")
    for _ in range(2):
        assert bundle.__wrapped__() == "the script\u2028"
    assert made == ["once"]
    (kept,) = (tmp_path / "cache" / "farandole").iterdir()
    assert kept.name.startswith("vega-")


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(render, "make_bundle", lambda: "the script")
    assert bundle.__wrapped__() == "the script"


def test_every_colour_of_charts_has_a_shade_for_dark_screens() -> None:
    css = files("farandole.report").joinpath("templates", "page.css").read_text()
    light, dark, _ = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)
    names = set(re.findall(r"--([a-z0-9]+): ", light))
    assert names == set(re.findall(r"--([a-z0-9]+): ", dark))
    assert {*SERIES, *PARTS, "ink", "paper"} <= names == set(colours())


def test_the_page_has_variables_where_paper_has_colours() -> None:
    assert not re.search(r"#[0-9a-f]{6}", json.dumps(page_config()))
    assert "var(" not in json.dumps(paper_config())


def test_every_series_has_its_own_colour_shape_and_dash() -> None:
    shades = {colours()[name] for name in SERIES}
    shapes, dashes = set(SHAPES), {tuple(dash) for dash in DASHES}
    assert len(shades) == len(shapes) == len(dashes) == len(SERIES)

"""Charts on paper and on the page look alike."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from farandole.report.theme import DASHES, PARTS, SERIES, SHAPES, colours, page_config, paper_config


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

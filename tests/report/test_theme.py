"""Charts on paper and on the page look alike."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from farandole.report.theme import COLOURS, DASHES, SERIES, SHAPES, page_config, paper_config


def test_the_style_sheet_has_the_same_colours_and_every_one_in_all_three_lights() -> None:
    css = files("farandole.report").joinpath("templates", "page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        defined = dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", block))
        assert set(COLOURS) <= set(defined)
    light = dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", blocks[0]))
    assert {name: light[name] for name in COLOURS} == COLOURS


def test_the_page_has_variables_where_paper_has_colours() -> None:
    assert not re.search(r"#[0-9a-f]{6}", json.dumps(page_config()))
    assert "var(" not in json.dumps(paper_config())


def test_every_series_has_its_own_colour_shape_and_dash() -> None:
    colours = {COLOURS[name] for name in SERIES}
    shapes, dashes = set(SHAPES), {tuple(dash) for dash in DASHES}
    assert len(colours) == len(shapes) == len(dashes) == len(SERIES)

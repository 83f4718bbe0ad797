"""How charts look: one configuration, with the style sheet's colours as values or as variables."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

SERIES = tuple(f"c{number}" for number in range(1, 9))
# Parts of a bar: from dark to light in grey print, too.
PARTS = tuple(f"p{number}" for number in range(1, 7))
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross"]
SHAPES += ["triangle-down", "triangle-left", "triangle-right"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [6, 2, 2, 2]]
_FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
# One family: vl-convert measures text three times slower with a list.
_STATIC_FONT = "sans-serif"


def resource(name: str) -> str:
    """Return the text of a file in templates/."""
    return files("farandole.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def colours() -> dict[str, str]:
    """Return the colours of page.css on light paper, by name."""
    light = resource("page.css").partition("}")[0]
    return dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", light))


def paper_config(*, font_size: int = 12) -> dict[str, Any]:
    """Return the configuration for PNG, SVG and PDF: dark on white."""
    return _config(colours(), font=_STATIC_FONT, font_size=font_size)


def page_config() -> dict[str, Any]:
    """Return the configuration for the page, whose style sheet decides on the colours."""
    variables = {name: f"var(--{name})" for name in colours()}
    return _config(variables, font=_FONT, font_size=12) | {"background": None}


def _config(colours: dict[str, str], *, font: str, font_size: int) -> dict[str, Any]:
    ink, muted, paper = colours["ink"], colours["muted"], colours["paper"]
    words = {
        "labelColor": ink,
        "titleColor": ink,
        "titleFontWeight": "normal",
        "labelFontSize": font_size,
        "titleFontSize": font_size,
        "labelLimit": 220,
    }
    lines = {"gridColor": colours["grid"], "domainColor": muted, "tickColor": muted, "tickSize": 4}
    symbols = {"symbolStrokeWidth": 2, "symbolSize": 80}
    small = font_size - 1
    return {
        "background": paper,
        "font": font,
        # The chart's place has a label and a table; a label per mark would only repeat them.
        "aria": False,
        "padding": 6,
        "view": {"stroke": None, "continuousWidth": 420, "continuousHeight": 260},
        "axis": words | lines | {"titlePadding": 8, "labelLimit": 180, "titleLimit": 420},
        "axisX": {"grid": False, "labelAngle": 0},
        "legend": words | symbols | {"orient": "top", "columns": 3},
        "header": words,
        "title": {"color": ink, "fontSize": font_size + 1, "anchor": "start", "limit": 420},
        "text": {"color": ink, "fontSize": font_size},
        "line": {"strokeWidth": 2},
        "point": {"filled": True, "size": 55, "opacity": 1},
        "rule": {"color": muted},
        "range": {
            "category": [colours[name] for name in SERIES],
            "ordinal": [colours[name] for name in PARTS],
        },
        "style": {
            # "color" beats the default of every kind of mark; "stroke" and "fill" do not.
            "ideal": {"color": muted, "strokeDash": [4, 3], "strokeWidth": 1.3},
            "ideal-label": {"color": muted, "fontSize": small},
            "interval": {"strokeWidth": 1.6},
            "over": {"color": ink},
            "cap": {"thickness": 1.6, "size": 7},
            "value": {"color": ink, "fontSize": small},
            "inside": {"color": paper, "fontSize": small},
            "hollow": {"filled": False, "strokeWidth": 2},
            "first": {"color": colours["c1"]},
            "best": {"stroke": ink, "strokeWidth": 2.5},
            "bar": {"stroke": paper, "strokeWidth": 0.8},
        },
    }

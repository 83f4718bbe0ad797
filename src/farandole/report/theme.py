"""How charts look: one configuration, with the colours as values or as the page's variables."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's colours for the colour-blind, the light ones darkened for thin lines on white.
# page.css has the same, and a lighter set for dark screens.
COLOURS = {
    "paper": "#ffffff",
    "ink": "#1c2126",
    "muted": "#5b6670",
    "grid": "#e3e7ea",
    "rule": "#c9d0d6",
    "c1": "#0072b2",
    "c2": "#d55e00",
    "c3": "#009e73",
    "c4": "#b0568a",
    "c5": "#3a9bd4",
    "c6": "#a87500",
    "c7": "#5b6670",
    "c8": "#7a4fb5",
    "p1": "#00558a",
    "p2": "#d55e00",
    "p3": "#4fae8f",
    "p4": "#f5b98a",
    "p5": "#cfdce8",
    "p6": "#8a9299",
}
SERIES = tuple(f"c{number}" for number in range(1, 9))
# Parts of a bar: from dark to light in grey print, too.
PARTS = tuple(f"p{number}" for number in range(1, 7))
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-left",
    "triangle-right",
)
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [6, 2, 2, 2]]
_FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
# One family: vl-convert measures text three times slower with a list.
_STATIC_FONT = "sans-serif"


def paper_config(*, font_size: int = 12) -> dict[str, Any]:
    """Return the configuration for PNG, SVG and PDF: dark on white."""
    return _config(dict(COLOURS), font=_STATIC_FONT, font_size=font_size)


def page_config() -> dict[str, Any]:
    """Return the configuration for the page, whose style sheet decides on the colours."""
    return _config({name: f"var(--{name})" for name in COLOURS}, font=_FONT, font_size=12)


def _config(colours: dict[str, str], *, font: str, font_size: int) -> dict[str, Any]:
    ink, muted, grid = colours["ink"], colours["muted"], colours["grid"]
    series = [colours[name] for name in SERIES]
    return {
        "background": None if colours["paper"].startswith("var") else colours["paper"],
        "font": font,
        # The chart's place has a label and a table; a label per mark would only repeat them.
        "aria": False,
        "padding": 6,
        "view": {"stroke": None, "continuousWidth": 420, "continuousHeight": 260},
        "axis": {
            "labelColor": ink,
            "titleColor": ink,
            "titleFontWeight": "normal",
            "labelFontSize": font_size,
            "titleFontSize": font_size,
            "titlePadding": 8,
            "labelLimit": 180,
            "titleLimit": 420,
            "gridColor": grid,
            "domainColor": muted,
            "tickColor": muted,
            "tickSize": 4,
        },
        "axisX": {"grid": False, "labelAngle": 0},
        "legend": {
            "labelColor": ink,
            "titleColor": ink,
            "titleFontWeight": "normal",
            "labelFontSize": font_size,
            "titleFontSize": font_size,
            "labelLimit": 220,
            "symbolStrokeWidth": 2,
            "symbolSize": 80,
            "orient": "top",
            "columns": 3,
        },
        "header": {
            "labelColor": ink,
            "titleColor": ink,
            "labelFontSize": font_size,
            "labelLimit": 220,
            "titleFontSize": font_size,
        },
        "title": {"color": ink, "fontSize": font_size + 1, "anchor": "start", "limit": 420},
        "text": {"color": ink, "fontSize": font_size},
        "line": {"strokeWidth": 2},
        "point": {"filled": True, "size": 55, "opacity": 1},
        "rule": {"color": muted},
        "range": {"category": series, "ordinal": [colours[name] for name in PARTS]},
        "style": {
            # "color" beats the default of every kind of mark; "stroke" and "fill" do not.
            "ideal": {"color": muted, "strokeDash": [4, 3], "strokeWidth": 1.3},
            "today": {"color": muted, "strokeDash": [1, 3], "strokeWidth": 1.6},
            "ideal-label": {"color": muted, "fontSize": font_size - 1},
            "interval": {"strokeWidth": 1.6},
            "over": {"color": ink},
            "cap": {"thickness": 1.6, "size": 7},
            "value": {"color": ink, "fontSize": font_size - 1},
            "inside": {"color": colours["paper"], "fontSize": font_size - 1},
            "hollow": {"filled": False, "strokeWidth": 2},
            "first": {"color": colours["c1"]},
            "best": {"stroke": ink, "strokeWidth": 2.5},
            "bar": {"stroke": colours["paper"], "strokeWidth": 0.8},
        },
    }

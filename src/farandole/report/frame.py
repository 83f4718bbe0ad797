"""What is around every page: its policy, style, chart data and scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files

from farandole.report.escape import html, script_json
from farandole.report.figure import Figure
from farandole.report.theme import page_config
from farandole.version import __version__

_CREDIT = (
    "Charts by Vega, Vega-Lite and Vega-Embed, copyright of their authors (University of "
    "Washington Interactive Data Lab), BSD 3-clause licence."
)


def frame(body: str, *, title: str, figures: Iterable[Figure], scripts: str) -> str:
    """Return a whole page that works offline and loads nothing from anywhere.

    Args:
        body: What it shows, as HTML: every string in it is escaped.
        title: Of the document, not yet escaped.
        figures: Whose charts have a place in the body.
        scripts: Vega, Vega-Lite and Vega-Embed in one, as `render.bundle` gives it.
    """
    drawing = _own("page.js")
    specs = {figure.name: _for_page(figure) for figure in figures}
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, drawing)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Farandole {html(__version__)}">
<title>{html(title)}</title>
<style>
{_own("page.css")}</style>
</head>
<body>
{body}
<footer><p>Made by Farandole {html(__version__)}. {_CREDIT}</p></footer>
<script type="application/json" id="chart-config">{script_json(page_config())}</script>
<script type="application/json" id="chart-specs">{script_json(specs)}</script>
<script>{scripts}</script>
<script>{drawing}</script>
</body>
</html>
"""


def _policy(*scripts: str) -> str:
    """Return a policy under which only these very scripts run, and nothing is fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _own(name: str) -> str:
    return files("farandole.report").joinpath(name).read_text(encoding="utf-8")


def _for_page(figure: Figure) -> dict[str, object]:
    # A single view fills its column; panels have their own width.
    return figure.spec if "facet" in figure.spec else {**figure.spec, "width": "container"}

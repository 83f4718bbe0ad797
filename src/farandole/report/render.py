"""Charts as pictures and as scripts, both by vl-convert: no browser, no network."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from farandole.errors import FarandoleError
from farandole.report.escape import strict
from farandole.report.figure import Figure, Spec
from farandole.report.theme import paper_config
from farandole.world.cache import cache_folder

PICTURES = ("png", "svg", "pdf")
_WIDTH = 440
# Half a column of a two-column page is 4 cm: few pixels, large letters.
_PASTE_WIDTH = 250
_PASTE_FONT = 15
_PIXELS_PER_INCH = 200
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def pictures(figure: Figure, endings: Sequence[str]) -> dict[str, bytes]:
    """Return a figure as the content of files by ending: PNG, SVG, PDF, dark on white."""
    if not endings:
        return {}
    import vl_convert

    spec, config = _on_paper(figure)
    drawing: str = vl_convert.vegalite_to_svg(spec, config=config, allowed_base_urls=[])
    make: dict[str, Callable[[], bytes]] = {
        "png": lambda: vl_convert.svg_to_png(drawing, scale=1, ppi=_PIXELS_PER_INCH),
        "svg": drawing.encode,
        "pdf": lambda: vl_convert.svg_to_pdf(drawing),
    }
    return {ending: make[ending]() for ending in endings}


@cache
def bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script for a page.

    Putting them together takes 2 s, so that the user's cache keeps the result.
    """
    from importlib.metadata import version

    from farandole.study.atomic import write_text

    folder = cache_folder(os.environ)
    kept = folder / f"vega-{version('vl-convert-python')}.js" if folder else None
    if kept is not None:
        with contextlib.suppress(OSError, ValueError):
            return kept.read_text(encoding="utf-8")
    script = make_bundle()
    if kept is not None:
        with contextlib.suppress(OSError, FarandoleError):  # a cache is no reason to fail
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, script)
    return script


def make_bundle() -> str:
    """Put the page's script together."""
    import vl_convert

    script: str = vl_convert.javascript_bundle(_SNIPPET)
    # Inside a script element only these two could end it or change how it is read; both occur in
    # strings and regular expressions, where the backslash changes nothing.
    script = re.sub(r"</(script)", r"<\\/\1", script, flags=re.IGNORECASE)
    return script.replace("<!--", "<\\!--")


def _on_paper(figure: Figure) -> tuple[str, dict[str, Any]]:
    small = figure.name == "scaling"
    width = _PASTE_WIDTH if small else _WIDTH
    spec: Spec = figure.spec if "facet" in figure.spec else {**figure.spec, "width": width}
    config = paper_config(font_size=_PASTE_FONT if small else 12)
    return json.dumps(strict(spec), allow_nan=False), config

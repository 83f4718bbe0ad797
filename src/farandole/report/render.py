"""A document as files: the page, Markdown, pictures and tables, by templates and vl-convert.

Charts have one configuration, with the style sheet's colours as values or as variables.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.errors import FarandoleError, UsageError
from farandole.format import BUSY, NOT_APPLICABLE, NOT_MEASURED, NOT_PUBLISHED
from farandole.report import escape
from farandole.report.document import Document, Figure, Picture, Spec
from farandole.report.table import Table, to_csv, to_latex, to_markdown
from farandole.study.folder import cannot_write, write_bytes, write_text
from farandole.version import __version__
from farandole.world.machine import cache_folder

if TYPE_CHECKING:
    from jinja2 import Environment

PICTURES = ("png", "svg", "pdf")
TABLES: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
_MARKS = {"void": "Void", "warn": "Warning", "note": "Note", "good": "Good"}
_CLASSES = {"void": "problem", "warn": "problem", "note": "", "good": "good"}
_ABSENT = (NOT_MEASURED, NOT_PUBLISHED, NOT_APPLICABLE, BUSY)
_PAGE = "report.html"
_MARKDOWN_ROWS = 60
_WIDTH = 440
# Half a column of a two-column page is 4 cm: few pixels, large letters.
_PASTE_WIDTH = 250
_PASTE_FONT = 15
_PIXELS_PER_INCH = 200
SERIES = tuple(f"c{number}" for number in range(1, 9))
# Parts of a bar: from dark to light in grey print, too.
PARTS = tuple(f"p{number}" for number in range(1, 7))
_FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
# One family: vl-convert measures text three times slower with a list.
_STATIC_FONT = "sans-serif"
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def write(
    document: Document,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
    more: Mapping[str, bytes] | None = None,
) -> Path:
    """Write report.html, report.md, figures/ and tables/, and return the page's path.

    The folder is made if it is not there; what an earlier report left is replaced. `figures` and
    `tables` are endings, `more` are further files by name.

    Raises:
        UsageError: An ending is not known.
        StoreError: The folder cannot be written to.
    """
    for flag, given, known in (("figures", figures, PICTURES), ("tables", tables, tuple(TABLES))):
        for ending in given:
            if ending not in known:
                raise UsageError(f"--{flag} {ending} is not known. Choose from {', '.join(known)}.")
    place = Path(folder)
    wanted: dict[str, bytes] = {}
    drawn_before = _specs_of(place / _PAGE)
    for figure in (*document.extra_figures, *document.figures()):
        names = {ending: f"figures/{figure.name}.{ending}" for ending in figures}
        # Drawing takes most of the time.
        same = drawn_before.get(figure.name) == _page_spec(figure)
        there = [ending for ending, name in names.items() if same and (place / name).is_file()]
        made = {ending: (place / names[ending]).read_bytes() for ending in there}
        made |= pictures(figure, [ending for ending in figures if ending not in made])
        wanted |= {names[ending]: content for ending, content in made.items()}
    for block in document.blocks():
        if isinstance(block, Picture) and "png" in figures:
            wanted[f"figures/{block.name}.png"] = block.png
    for table in document.tables():
        wanted |= _table_files(table, tables)
    for table in document.csv_only:
        wanted |= _table_files(table, [ending for ending in tables if ending == "csv"])
    wanted |= {name: text.encode() for name, text in document.extra_files.items()}
    shown = next((ending for ending in ("png", "svg") if ending in figures), None)
    wanted["report.md"] = markdown(document, picture=shown).encode()
    wanted |= more or {}
    # Last: whoever finds the page finds everything else, too.
    wanted[_PAGE] = page(document, scripts=bundle()).encode()
    for name, content in wanted.items():
        path = place / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        write_bytes(path, content, durable=False)
    _remove_stale(place, set(wanted))
    return place / _PAGE


def _page_spec(figure: Figure) -> Spec:
    """Return a figure's specification on the page: a single view fills its column."""
    wide = {} if "facet" in figure.spec else {"width": "container"}
    return json.loads(escape.script_json(figure.spec | wide))  # type: ignore[no-any-return]


def _specs_of(page: Path) -> dict[str, Spec]:
    """Return the charts of an earlier page of this version, by name; none where there is none."""
    with contextlib.suppress(OSError, ValueError):
        text = page.read_text(encoding="utf-8")
        found = re.search(r'id="chart-specs">(.*?)</script>', text)
        if found and f'content="Farandole {__version__}"' in text:
            return json.loads(found[1])  # type: ignore[no-any-return]
    return {}


def page(document: Document, *, scripts: str, live: str = "", version: str = "") -> str:
    """Return one HTML file that works offline and loads nothing from anywhere.

    `scripts` are Vega, Vega-Lite and Vega-Embed in one, as `bundle` gives them. With `live`, a
    script that asks the page's own server for what is newer than `version`, it is a live page.
    """
    from markupsafe import Markup

    drawing, style = resource("page.js"), resource("page.css")
    specs = {figure.name: _page_spec(figure) for figure in document.figures()}
    return (
        _environment("html")
        .get_template("page.html")
        .render(
            document=document,
            policy=_policy(scripts, drawing, *([live] if live else [])),
            version=__version__,
            shown_version=version,
            style=Markup(style),
            config=Markup(escape.script_json(page_config())),
            specs=Markup(escape.script_json(specs)) if specs else Markup("{}"),
            scripts=Markup(scripts),
            drawing=Markup(drawing),
            live=Markup(live),
        )
    )


def markdown(document: Document, *, picture: str | None) -> str:
    """Return the document as Markdown; `picture` is the ending of the pictures in figures/."""
    template = _environment("markdown").get_template("report.md")
    text = template.render(document=document, picture=picture, version=__version__)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _environment(kind: str) -> Environment:
    """Return the templates' environment: every string is escaped for its format."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def text(value: Any) -> Any:
        if isinstance(value, Markup):
            return value
        if kind == "markdown":
            return Markup(escape.markdown("" if value is None else value))
        return escape.visible("" if value is None else value)

    environment = Environment(
        loader=PackageLoader("farandole.report"),
        autoescape=True,
        finalize=text,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["markdown_table"] = lambda table: Markup(
        to_markdown(table, limit=_MARKDOWN_ROWS)
    )
    environment.filters["code_block"] = lambda lines: Markup("\n".join(escape.code_block(lines)))
    environment.globals |= {"marks": _MARKS, "classes": _CLASSES, "absent": _ABSENT}
    return environment


def pictures(figure: Figure, endings: Sequence[str]) -> dict[str, bytes]:
    """Return a figure as the content of files by ending: PNG, SVG, PDF, dark on white."""
    if not endings:
        return {}
    import vl_convert

    small = figure.name == "scaling"
    width = _PASTE_WIDTH if small else _WIDTH
    spec: Spec = figure.spec if "facet" in figure.spec else {**figure.spec, "width": width}
    config = paper_config(font_size=_PASTE_FONT if small else 12)
    text = json.dumps(escape.plain(spec), allow_nan=False)
    drawing: str = vl_convert.vegalite_to_svg(text, config=config, allowed_base_urls=[])
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


def _policy(*scripts: str) -> str:
    """Return a policy under which only these very scripts run, and nothing is fetched."""
    from markupsafe import Markup

    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    asks = "connect-src 'self'; " if len(scripts) > 2 else ""
    return Markup(
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        f"{asks}base-uri 'none'; form-action 'none'"
    )


def _table_files(table: Table, endings: Sequence[str]) -> dict[str, bytes]:
    """Return a table's files by name; an empty table has none."""
    if not table.rows:
        return {}
    return {f"tables/{table.name}.{ending}": TABLES[ending](table).encode() for ending in endings}


def _remove_stale(place: Path, wanted: set[str]) -> None:
    """Remove pictures and tables of an earlier report that this one does not have."""
    endings = {"figures": (*PICTURES, "txt"), "tables": tuple(TABLES)}
    for name, known in endings.items():
        for path in (place / name).glob("*.*") if (place / name).is_dir() else ():
            ours = path.suffix.lstrip(".") in known and path.is_file()
            if ours and f"{name}/{path.name}" not in wanted:
                path.unlink()


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

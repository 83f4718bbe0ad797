"""A document as files: the page, Markdown, pictures and tables, by templates and vl-convert."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.errors import FarandoleError, UsageError
from farandole.format import BUSY, NOT_APPLICABLE, NOT_MEASURED, NOT_PUBLISHED
from farandole.report import escape
from farandole.report.document import Document, Figure, Picture, Spec
from farandole.report.table import Table, to_csv, to_latex, to_markdown
from farandole.report.theme import page_config, paper_config, resource
from farandole.study.folder import cannot_write, write_text
from farandole.version import __version__
from farandole.world.cache import cache_folder

if TYPE_CHECKING:
    from jinja2 import Environment

PICTURES = ("png", "svg", "pdf")
TABLES: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
_MARKS = {"void": "Void", "warn": "Warning", "note": "Note", "good": "Good"}
_CLASSES = {"void": "problem", "warn": "problem", "note": "", "good": "good"}
_ABSENT = (NOT_MEASURED, NOT_PUBLISHED, NOT_APPLICABLE, BUSY)
_MARKDOWN_ROWS = 60
_WIDTH = 440
# Half a column of a two-column page is 4 cm: few pixels, large letters.
_PASTE_WIDTH = 250
_PASTE_FONT = 15
_PIXELS_PER_INCH = 200
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def write(
    document: Document,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
    more: Mapping[str, bytes] | None = None,
    drawn_since: float | None = None,
    redraw: Iterable[Figure] = (),
) -> Path:
    """Write report.html, report.md, figures/ and tables/, and return the page's path.

    Args:
        document: What to write.
        folder: Made if it is not there; what an earlier report left is replaced.
        figures: Endings of pictures: png, svg, pdf.
        tables: Endings of tables: csv, md, tex.
        more: Further files by name.
        drawn_since: Keep pictures that are there and younger than this Unix time: drawing takes
            most of the time.
        redraw: Figures that are drawn in any case.

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
    anew = {figure.name for figure in redraw}
    for figure in (*document.extra_figures, *document.figures()):
        names = {ending: f"figures/{figure.name}.{ending}" for ending in figures}
        kept = {} if figure.name in anew else _young(place, names.values(), drawn_since)
        missing = [ending for ending, name in names.items() if name not in kept]
        made = pictures(figure, missing)
        wanted |= kept | {names[ending]: content for ending, content in made.items()}
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
    wanted["report.html"] = page(document, scripts=bundle()).encode()
    for name, content in wanted.items():
        _write(place / name, content)
    _remove_stale(place, set(wanted))
    return place / "report.html"


def page(document: Document, *, scripts: str) -> str:
    """Return one HTML file that works offline and loads nothing from anywhere.

    Args:
        document: What it shows.
        scripts: Vega, Vega-Lite and Vega-Embed in one, as `bundle` gives it.
    """
    from markupsafe import Markup

    drawing, style = resource("page.js"), resource("page.css")
    # A single view fills its column; panels have their own width.
    specs = {
        figure.name: figure.spec if "facet" in figure.spec else figure.spec | {"width": "container"}
        for figure in document.figures()
    }
    return (
        _environment("html")
        .get_template("page.html")
        .render(
            document=document,
            policy=_policy(scripts, drawing),
            version=__version__,
            style=Markup(style),
            config=Markup(escape.script_json(page_config())),
            specs=Markup(escape.script_json(specs)) if specs else Markup("{}"),
            scripts=Markup(scripts),
            drawing=Markup(drawing),
        )
    )


def markdown(document: Document, *, picture: str | None) -> str:
    """Return the document as Markdown.

    Args:
        document: What it shows.
        picture: Ending of the pictures in figures/ to show; None when there are none.
    """
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
    return Markup(
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _young(place: Path, names: Iterable[str], since: float | None) -> dict[str, bytes]:
    """Return the files that are there and younger than a time."""
    found: dict[str, bytes] = {}
    for name in names if since is not None else ():
        with contextlib.suppress(OSError):
            if (place / name).stat().st_mtime > (since or 0.0):
                found[name] = (place / name).read_bytes()
    return found


def _table_files(table: Table, endings: Sequence[str]) -> dict[str, bytes]:
    """Return a table's files by name; an empty table has none."""
    if not table.rows:
        return {}
    return {f"tables/{table.name}.{ending}": TABLES[ending](table).encode() for ending in endings}


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise cannot_write(path, error) from error


def _remove_stale(place: Path, wanted: set[str]) -> None:
    """Remove pictures and tables of an earlier report that this one does not have."""
    endings = {"figures": (*PICTURES, "txt"), "tables": tuple(TABLES)}
    for name, known in endings.items():
        for path in (place / name).glob("*.*") if (place / name).is_dir() else ():
            ours = path.suffix.lstrip(".") in known and path.is_file()
            if ours and f"{name}/{path.name}" not in wanted:
                path.unlink()

"""Writing a report into a folder: the page, the Markdown, figures and tables."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from farandole.model.info.comparison import Comparison
from farandole.model.info.scaling import ScalingInfo
from farandole.report import markdown, method
from farandole.report.contents import Contents, contents
from farandole.report.figure import Figure
from farandole.report.output import (
    TABLES,
    check_endings,
    picture_files,
    shown_in_markdown,
    table_files,
    write_files,
)
from farandole.report.page import page
from farandole.report.render import PICTURES, bundle


def write(
    found: ScalingInfo | Comparison,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
    drawn_since: float | None = None,
) -> Path:
    """Write report.html, report.md, figures/ and tables/, and return the page's path.

    Args:
        found: One study, or several side by side.
        folder: Made if it is not there; what an earlier report left is replaced.
        figures: Endings of pictures: png, svg, pdf.
        tables: Endings of tables: csv, md, tex.
        drawn_since: Keep pictures that are there and younger than this Unix time, but for those of
            a projection: drawing takes most of the time, and the study has not changed.

    Raises:
        UsageError: An ending is not known.
        StoreError: The folder cannot be written to.
    """
    check_endings("--figures", figures, PICTURES)
    check_endings("--tables", tables, tuple(TABLES))
    shown = contents(found)
    place = Path(folder)
    kept = {} if drawn_since is None else _kept(shown, figures, place, drawn_since)
    wanted = kept | _pictures(shown, figures, kept) | _tables(shown, tables)
    wanted["report.md"] = markdown.document(shown, picture=shown_in_markdown(figures)).encode()
    # Last: whoever finds the page finds everything else, too.
    wanted["report.html"] = page(shown, scripts=bundle()).encode()
    write_files(place, wanted)
    return place / "report.html"


def _kept(shown: Contents, endings: Sequence[str], place: Path, since: float) -> dict[str, bytes]:
    """Return what is on disk of figures that are not a projection's, if it is young enough."""
    own = shown.projection.figures if shown.projection else ()
    names = [figure.name for figure in _drawable(shown) if figure not in own]
    found: dict[str, bytes] = {}
    for name in (f"figures/{name}.{ending}" for name in names for ending in endings):
        with contextlib.suppress(OSError):
            if (place / name).stat().st_mtime > since:
                found[name] = (place / name).read_bytes()
    return found


def _drawable(shown: Contents) -> list[Figure]:
    return [*([shown.paste] if shown.paste else []), *shown.figures()]


def _pictures(
    shown: Contents, endings: Sequence[str], kept: Mapping[str, bytes]
) -> dict[str, bytes]:
    wanted = [
        figure
        for figure in _drawable(shown)
        if any(f"figures/{figure.name}.{ending}" not in kept for ending in endings)
    ]
    files = picture_files(wanted, endings)
    if shown.paste is not None:
        words = [method.caption(shown.infos), *(method.paragraph(info) for info in shown.infos)]
        files["figures/scaling.txt"] = ("\n\n".join(words) + "\n").encode()
    return files


def _tables(shown: Contents, endings: Sequence[str]) -> dict[str, bytes]:
    for_people = [table for table in shown.tables() if table not in shown.files]
    long_ones = [ending for ending in endings if ending == "csv"]
    return table_files(for_people, endings) | table_files(shown.files, long_ones)

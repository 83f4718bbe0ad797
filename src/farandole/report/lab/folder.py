"""Writing the report of a lab into a folder: page, Markdown, JSON, figures and tables."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from farandole.report.lab import markdown
from farandole.report.lab.contents import contents
from farandole.report.lab.document import to_json
from farandole.report.lab.page import page
from farandole.report.lab.record import LabReport
from farandole.report.output import (
    TABLES,
    check_endings,
    picture_files,
    shown_in_markdown,
    table_files,
    write_files,
)
from farandole.report.render import PICTURES, bundle


def write_lab(
    report: LabReport,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
) -> Path:
    """Write report.html, report.md, report.json, figures/ and tables/; return the page's path.

    Args:
        report: What the lab found.
        folder: Made if it is not there; what an earlier report left is replaced.
        figures: Endings of pictures: png, svg, pdf.
        tables: Endings of tables: csv, md, tex.

    Raises:
        UsageError: An ending is not known.
        StoreError: The folder cannot be written to.
    """
    check_endings("--figures", figures, PICTURES)
    check_endings("--tables", tables, tuple(TABLES))
    shown = contents(report)
    place = Path(folder)
    wanted = picture_files(shown.figures(), figures) | table_files(shown.tables(), tables)
    text = markdown.document(shown, picture=shown_in_markdown(figures))
    wanted["report.md"] = text.encode()
    # ASCII: names of files need not be UTF-8, and escapes keep them.
    wanted["report.json"] = json.dumps(to_json(report), indent=1, allow_nan=False).encode() + b"\n"
    # Last: whoever finds the page finds everything else, too.
    wanted["report.html"] = page(shown, scripts=bundle()).encode()
    write_files(place, wanted)
    return place / "report.html"

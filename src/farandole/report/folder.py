"""Writing a report into a folder: the page, the Markdown, figures and tables."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from farandole.errors import UsageError
from farandole.model.info import Comparison, ScalingInfo
from farandole.report import markdown, method
from farandole.report.anonymous import anonymous as without_names
from farandole.report.contents import Contents, contents
from farandole.report.page import page
from farandole.report.render import PICTURES, bundle, pictures
from farandole.report.table import Table, to_csv, to_latex, to_markdown
from farandole.study.atomic import cannot_write

TABLES: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
}


def write(
    found: ScalingInfo | Comparison,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
    anonymous: bool = False,
) -> Path:
    """Write report.html, report.md, figures/ and tables/, and return the page's path.

    Args:
        found: One study, or several side by side.
        folder: Made if it is not there; what an earlier report left is replaced.
        figures: Endings of pictures: png, svg, pdf.
        tables: Endings of tables: csv, md, tex.
        anonymous: Leave out names of hosts, users, paths and commits.

    Raises:
        UsageError: An ending is not known.
        StoreError: The folder cannot be written to.
    """
    check_endings("--figures", figures, PICTURES)
    check_endings("--tables", tables, tuple(TABLES))
    if anonymous:
        found = without_names(found)
    shown = contents(found)
    place = Path(folder)
    wanted = _pictures(shown, figures) | _tables(shown, tables)
    wanted["report.md"] = markdown.document(shown, picture=_shown_in_markdown(figures)).encode()
    # Last: whoever finds the page finds everything else, too.
    wanted["report.html"] = page(shown, scripts=bundle()).encode()
    for name, content in wanted.items():
        _write(place / name, content)
    _remove_stale(place, set(wanted))
    return place / "report.html"


def check_endings(flag: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse an ending that is not known."""
    for ending in given:
        if ending not in known:
            raise UsageError(f"{flag} {ending} is not known. Choose from {', '.join(known)}.")


def _pictures(shown: Contents, endings: Sequence[str]) -> dict[str, bytes]:
    drawn = [*([shown.paste] if shown.paste else []), *shown.figures()]
    files = {
        f"figures/{figure.name}.{ending}": content
        for figure in drawn
        for ending, content in pictures(figure, endings).items()
    }
    if shown.paste is not None:
        words = [method.caption(shown.infos), *(method.paragraph(info) for info in shown.infos)]
        files["figures/scaling.txt"] = ("\n\n".join(words) + "\n").encode()
    return files


def _tables(shown: Contents, endings: Sequence[str]) -> dict[str, bytes]:
    return {
        f"tables/{table.name}.{ending}": TABLES[ending](table).encode()
        for table in shown.tables()
        for ending in endings
        if table.rows and (ending == "csv" or table not in shown.files)
    }


def _shown_in_markdown(figures: Sequence[str]) -> str | None:
    return next((ending for ending in ("png", "svg") if ending in figures), None)


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

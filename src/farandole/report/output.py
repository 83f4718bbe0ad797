"""The files of a report: pictures, tables, and putting all of them into a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from farandole.errors import UsageError
from farandole.report.figure import Figure
from farandole.report.render import PICTURES, pictures
from farandole.report.table import Table, to_csv, to_latex, to_markdown
from farandole.study.atomic import cannot_write

TABLES: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
}


def check_endings(flag: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse an ending that is not known."""
    for ending in given:
        if ending not in known:
            raise UsageError(f"{flag} {ending} is not known. Choose from {', '.join(known)}.")


def picture_files(figures: Iterable[Figure], endings: Sequence[str]) -> dict[str, bytes]:
    """Return the content of figures/ by the names of its files."""
    return {
        f"figures/{figure.name}.{ending}": content
        for figure in figures
        for ending, content in pictures(figure, endings).items()
    }


def table_files(tables: Iterable[Table], endings: Sequence[str]) -> dict[str, bytes]:
    """Return the content of tables/ by the names of its files; an empty table has none."""
    return {
        f"tables/{table.name}.{ending}": TABLES[ending](table).encode()
        for table in tables
        if table.rows
        for ending in endings
    }


def shown_in_markdown(figures: Sequence[str]) -> str | None:
    """Return the ending of the pictures that Markdown can show, if there are any."""
    return next((ending for ending in ("png", "svg") if ending in figures), None)


def write_files(place: Path, wanted: Mapping[str, bytes]) -> None:
    """Write all files, in their order, and remove what an earlier report left.

    Raises:
        StoreError: The folder cannot be written to.
    """
    for name, content in wanted.items():
        _write(place / name, content)
    _remove_stale(place, set(wanted))


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

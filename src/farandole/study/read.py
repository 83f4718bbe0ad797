"""Reading a study's folder into records."""

from __future__ import annotations

import json
from dataclasses import replace
from os import PathLike
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from farandole.errors import UsageError
from farandole.study import encode, folder
from farandole.study.rank_file import newer_schema, read_rank
from farandole.study.records import SCHEMA, Apart, Launch, Link, Study


class DamagedError(UsageError):
    """A file of a study that does not hold what it should."""


def read_study(path: str | PathLike[str]) -> Study:
    """Read a study with all launches that were recorded to their end; it always has a label.

    A damaged link.json is left out, and the study's notes say so: it is a calibration only.

    Raises:
        UsageError: There is no study, it cannot be read, or a newer Farandole wrote it.
    """
    place = Path(path)
    head = read_head(place)
    try:
        folders = folder.finished_folders(place)
    except OSError as error:
        raise _unreadable(place, error) from error
    launches = (*(read_launch(launch) for launch in folders), *_read_rows(place))
    # Without a label the folder's name tells studies apart.
    label = head.label or place.resolve().name
    notes: tuple[str, ...] = ()
    try:
        link = _read_link(place)
    except DamagedError as error:
        link, notes = Link(), (f"{error} The study is read without it.",)
    return replace(
        head, label=label, launches=launches, link=link, apart=read_apart(place), notes=notes
    )


def read_head(path: Path) -> Study:
    """Read study.json alone: the study without its launches.

    Raises:
        UsageError: As `read_study`.
    """
    _check_place(path)
    file = path / folder.STUDY_FILE
    content = _read_json(file)
    if content.get("kind") != encode.KIND:
        raise UsageError(
            f"{file} is not a study of Farandole: its kind is {content.get('kind')!r}."
        )
    _check_schema(file, content)
    try:
        return encode.study_from_json(content, path=str(path))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(file, error) from error


def read_launch(path: Path, *, ranks: bool = True) -> Launch:
    """Read the launch in this folder, without its ranks on request.

    Raises:
        UsageError: It was not recorded to its end, is damaged, or a newer Farandole wrote it.
    """
    file = path / folder.LAUNCH_FILE
    content = _read_json(file)
    _check_schema(file, content)
    try:
        launch = encode.launch_from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, error) from error
    if not ranks:
        return launch
    found = (read_rank(rank) for rank in folder.rank_files(path))
    return replace(launch, ranks=tuple(rank for rank in found if rank is not None))


def _read_rows(path: Path) -> list[Launch]:
    """Read the launches of a long imported table; none where a study has no such file."""
    file = path / folder.ROWS_FILE
    launches = []
    try:
        with file.open("rb") as lines:
            for line in lines:
                content = json.loads(line)
                _check_schema(file, content)
                launches.append(encode.launch_from_json(content))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(file, error) from error
    except UsageError:
        raise  # a newer schema, which is a ValueError, too
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(file, error) from error
    return launches


def is_study(path: Path) -> bool:
    """Tell whether a study, readable or not, is at this place.

    Raises:
        OSError: The place cannot be looked at.
    """
    try:
        (path / folder.STUDY_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _check_place(path: Path) -> None:
    try:
        if not S_ISDIR(path.stat().st_mode):
            hint = "Name the folder of a study (its --out)."
            if path.suffix.lower() in (".csv", ".tsv"):
                hint = f"Make one of this table first: farandole study import {path} --out DIR"
            raise UsageError(f"{path} is a file, but a study is a folder. {hint}")
        if is_study(path):
            return
        empty = next(path.iterdir(), None) is None
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} does not exist. Name the folder of a study (its --out)."
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if empty:
        raise UsageError(f"{path} is empty. Name the folder of a study (its --out).")
    for parent in list(path.resolve().parents)[:2]:
        if is_study(parent):
            raise UsageError(f"{path} is only a part of a study. Name its folder: {parent}")
    raise UsageError(
        f"{path} is not the folder of a study: it has no {folder.STUDY_FILE}. "
        "Name the one that was given to --out."
    )


def _read_link(path: Path) -> Link:
    file = path / folder.LINK_FILE
    if not file.exists():
        return Link()
    content = _read_json(file)
    _check_schema(file, content)
    try:
        return encode.link_from_json(content)
    except (TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, error) from error


def read_apart(path: Path) -> tuple[Apart, ...]:
    """Read what workers did each for itself; nothing where that was not measured.

    Raises:
        UsageError: It is damaged, or a newer Farandole wrote it.
    """
    file = path / folder.APART_FILE
    if not file.exists():
        return ()
    content = _read_json(file)
    _check_schema(file, content)
    try:
        return encode.apart_from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, error) from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise _unreadable(file, error) from error
    except RecursionError as error:
        raise _damaged(file, ValueError("its lists or objects are nested too deeply")) from error
    except ValueError as error:
        raise _damaged(file, error) from error
    if not isinstance(content, dict):
        raise _damaged(file, TypeError("not an object"))
    return content


def _check_schema(file: Path, content: dict[str, Any]) -> None:
    schema = content.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise _damaged(file, ValueError(f"its schema is {schema!r}"))
    if schema > SCHEMA:
        raise newer_schema(str(file), schema)


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read ({error.strerror}).")


def _damaged(file: Path, error: Exception) -> DamagedError:
    why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    then = {
        folder.LAUNCH_FILE: "Remove it, and --resume makes that launch again.",
        folder.LINK_FILE: "Remove it, and --resume measures the link again.",
    }.get(file.name, "Take it from a backup.")
    return DamagedError(f"{file} is damaged ({why}). {then}")

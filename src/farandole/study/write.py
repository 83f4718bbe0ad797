"""Writing a study's folder, one whole file after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.study import encode, folder
from farandole.study.folder import cannot_write, write_json, write_text
from farandole.study.read import is_study
from farandole.study.records import Apart, Cell, Launch, Link, Study


def create_study(
    path: Path,
    *,
    label: str,
    command: Sequence[str],
    spec: Mapping[str, Any],
    machine: Mapping[str, Any],
    created: str | None = None,
) -> Study:
    """Begin a study in a folder that is empty or not there yet, and return it without launches.

    Raises:
        UsageError: Something else is there.
        StoreError: The folder cannot be written to.
    """
    check_new(path)
    study = Study(
        path=str(path),
        label=label,
        command=tuple(command),
        spec=dict(spec),
        machine=dict(machine),
        created=created or now(),
        launches=(),
        complete=False,
    )
    try:
        (path / folder.LAUNCHES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    write_head(study)
    return study


def check_new(path: Path) -> None:
    """Refuse a place for a new study at which there is something else.

    Raises:
        UsageError: It is a file, a study, or holds anything that a new study's folder would not.
    """
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(f"--out {path} is a file. Name a folder for the study.")
        if is_study(path):
            raise UsageError(
                f"--out {path} holds a study already. Go on with it by --resume {path}, or name "
                "another folder."
            )
        # A study that was ended before its first file has left these, and nothing to lose.
        ours = (folder.LAUNCHES, folder.LOCK_FILE)
        others = [] if not path.exists() else [p for p in path.iterdir() if p.name not in ours]
    except OSError as error:
        raise UsageError(f"--out {path} cannot be read ({error.strerror}).") from error
    if others or folder.launch_folders(path):
        raise UsageError(f"--out {path} is not empty. Name a new folder, or empty this one.")


def write_head(study: Study) -> None:
    """Write study.json: the study without its launches and its link.

    Raises:
        StoreError: It cannot be written; what was there before still is.
    """
    write_json(Path(study.path) / folder.STUDY_FILE, encode.study_to_json(study))


def mark_complete(study: Study, complete: bool = True) -> Study:
    """Record whether all planned launches have been made, and return the study so."""
    study = replace(study, complete=complete)
    write_head(study)
    return study


def new_launch_folder(study: Path, cell: Cell, repeat: int) -> Path:
    """Make the folder of the next launch, and in it the launch's own, `work`.

    Its name is the launch's id. Only for who holds the folder's lock.

    Raises:
        StoreError: It cannot be made.
    """
    name = folder.launch_id(folder.next_number(study), cell, repeat)
    place = folder.launch_folder(study, name)
    try:
        (place / folder.WORK).mkdir(parents=True)
    except OSError as error:
        raise cannot_write(place, error) from error
    return place


def write_launch(place: Path, launch: Launch, *, durable: bool = True) -> None:
    """Write launch.json, which makes a launch count: call it last.

    Args:
        place: The launch's folder. The workers have written the ranks' files there themselves.
        launch: What to write; its `ranks` are not.
        durable: Whether to wait for the disk.

    Raises:
        StoreError: It cannot be written; the launch then counts as interrupted.
    """
    write_json(place / folder.LAUNCH_FILE, encode.launch_to_json(launch), durable=durable)


def write_rows(study: Path, launches: Sequence[Launch]) -> None:
    """Write the launches of a long imported table into one file, launches.jsonl.

    Raises:
        StoreError: It cannot be written.
    """
    cells: dict[Cell, Any] = {}
    dump = json.JSONEncoder(allow_nan=False).encode
    lines = (dump(encode.row_to_json(launch, cells)) for launch in launches)
    write_text(study / folder.ROWS_FILE, "\n".join([*lines, ""]), durable=False)


def write_link(study: Path, link: Link) -> None:
    """Write the calibration of what connects the workers.

    Raises:
        StoreError: It cannot be written; what was there before still is.
    """
    write_json(study / folder.LINK_FILE, encode.link_to_json(link))


def write_apart(study: Path, apart: Sequence[Apart]) -> None:
    """Write what workers did each for itself.

    Raises:
        StoreError: It cannot be written; what was there before still is.
    """
    write_json(study / folder.APART_FILE, encode.apart_to_json(apart))


def now() -> str:
    """Return this moment as the records have it: ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

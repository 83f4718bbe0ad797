"""Where things lie in a study's folder, and what launches are called."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from farandole.study.records import Cell

STUDY_FILE = "study.json"
LINK_FILE = "link.json"
APART = "apart"
APART_FILE = "apart.json"
LAUNCHES = "launches"
LAUNCH_FILE = "launch.json"
ROWS_FILE = "launches.jsonl"
OUTPUT_FILE = "output.txt"
WORK = "work"
LOCK_FILE = ".lock"

_LAUNCH_NAME = re.compile(r"(\d{4,})-.+")
_RANK_NAME = re.compile(r"rank-(\d+)\.jsonl")


def shown(path: Path, here: Path) -> str:
    """Write a path as short as it can be used from here."""
    try:
        return str(path.relative_to(here))
    except ValueError:
        return str(path)


def launch_id(number: int, cell: Cell, repeat: int) -> str:
    """Name a launch for people; the number alone makes it unique: `0001-w2-b64-r0`."""
    hosts = "" if cell.hosts == 1 else f"-h{cell.hosts}"
    batch = "" if cell.batch is None else f"-b{cell.batch}"
    return f"{number:04d}-w{cell.workers}{hosts}{batch}-r{repeat}"


def launch_folder(study: Path, name: str) -> Path:
    """Return the folder of the launch of this name."""
    return study / LAUNCHES / name


def rank_file(folder: Path, rank: int) -> Path:
    """Return where a worker of the launch in this folder records."""
    return folder / f"rank-{rank}.jsonl"


def apart_folder(study: Path, workers: int) -> Path:
    """Return where so many copies of the script ran at once, each for itself."""
    return study / APART / f"w{workers}"


def copy_folder(apart: Path, copy: int) -> Path:
    """Return where one of these copies records."""
    return apart / f"copy-{copy}"


def next_number(study: Path) -> int:
    """Return a number for the next launch, above those of all that are there."""
    return max((_number(folder) for folder in launch_folders(study)), default=0) + 1


def launch_folders(study: Path) -> list[Path]:
    """List the folders of launches, finished or not, in the order of their numbers."""
    parent = study / LAUNCHES
    if not parent.is_dir():
        return []
    found = [path for path in parent.iterdir() if _LAUNCH_NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_number(path), path.name))


def finished_folders(study: Path) -> list[Path]:
    """List the folders of launches that were recorded to their end."""
    return [folder for folder in launch_folders(study) if (folder / LAUNCH_FILE).exists()]


def rank_files(folder: Path) -> list[Path]:
    """List the files that the workers of a launch wrote, by rank."""
    found = [
        (int(match[1]), path)
        for path in folder.iterdir()
        if (match := _RANK_NAME.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found)]


def remove_interrupted(study: Path) -> list[str]:
    """Delete launches that were interrupted, and return their names.

    Only for who holds the folder's lock: elsewhere the launch may just be running.
    """
    removed = []
    for folder in launch_folders(study):
        if folder.is_dir() and not folder.is_symlink() and not (folder / LAUNCH_FILE).exists():
            shutil.rmtree(folder)
            removed.append(folder.name)
    return removed


def _number(folder: Path) -> int:
    match = _LAUNCH_NAME.fullmatch(folder.name)
    assert match is not None
    return int(match[1])

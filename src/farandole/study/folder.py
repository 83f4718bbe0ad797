"""A study's folder: where things lie, files that are written whole, one study at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from farandole.errors import StoreError, UsageError
from farandole.study.codec import encode, number
from farandole.study.records import SCHEMA, Apart, Cell, Launch, Link, Study

KIND = "farandole-study"
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
# What an imported row tells beside its cell, figures and metrics.
_ROW_FIELDS = ("id", "repeat", "seed", "purpose", "outcome", "reason", "wall_s")


def shown(path: Path, here: Path) -> str:
    """Write a path as short as it can be used from here."""
    try:
        return str(path.relative_to(here))
    except ValueError:
        return str(path)


def now() -> str:
    """Return this moment as the records have it: ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def new_folder(name: str, parent: Path) -> Path:
    """Return a folder that is not there yet: `study-train-1`."""
    number = 1
    while (path := parent / f"{name}-{number}").exists():
        number += 1
    return path


def launch_id(number: int, cell: Cell, repeat: int) -> str:
    """Name a launch for people; the number alone makes it unique: `0001-w2-b64-r0`."""
    hosts = "" if cell.hosts == 1 else f"-h{cell.hosts}"
    batch = "" if cell.batch is None else f"-b{cell.batch}"
    return f"{number:04d}-w{cell.workers}{hosts}{batch}-r{repeat}"


def rank_file(folder: Path, rank: int) -> Path:
    """Return where a worker of the launch in this folder records."""
    return folder / f"rank-{rank}.jsonl"


def rank_files(folder: Path) -> list[Path]:
    """List the files that the workers of a launch wrote, by rank."""
    ranks = [match[1] for path in folder.iterdir() if (match := _RANK_NAME.fullmatch(path.name))]
    return [folder / f"rank-{rank}.jsonl" for rank in sorted(ranks, key=int)]


def launch_folders(study: Path) -> list[Path]:
    """List the folders of launches, finished or not, in the order of their numbers."""
    parent = study / LAUNCHES
    entries = parent.iterdir() if parent.is_dir() else ()
    found = [path for path in entries if _LAUNCH_NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_number(path), path.name))


def finished_folders(study: Path) -> list[Path]:
    """List the folders of launches that were recorded to their end."""
    return [folder for folder in launch_folders(study) if (folder / LAUNCH_FILE).exists()]


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
    return int(folder.name.partition("-")[0])


# Files that are whole or not there.


def write_json(path: Path, content: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write strict JSON; see `write_bytes`."""
    # ASCII: names of files and a script's output need not be UTF-8, and escapes keep them.
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n", durable=durable)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write text in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode(), durable=durable)


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file under a temporary name and rename it; on failure its old content stays.

    A durable one is also there after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise cannot_write(path, error) from error
    if durable:
        # The renaming, too; file systems that cannot do so are none of our business.
        with contextlib.suppress(OSError), _opened(path.parent, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> StoreError:
    """Say that a file of a study could not be written, and what to do."""
    why = error.strerror or str(error)
    then = "Choose a folder that can be written to, or make this one so and use --resume"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why, then = "the disk is full", "Free some space, then continue with --resume"
    return StoreError(
        f"{path} cannot be written: {why}. Everything written so far is kept. {then}."
    )


# One study at a time.

# Network file systems without locks: better a study than none.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextlib.contextmanager
def locked(study: Path) -> Iterator[None]:
    """Hold the folder for this process; the kernel lets go of it however the process ends."""
    path = study / LOCK_FILE
    with contextlib.ExitStack() as stack:
        try:
            study.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = stack.enter_context(_opened(path, os.O_RDWR | os.O_CREAT))
                if not _lock(descriptor):
                    raise UsageError(_held(path, descriptor))
                # One that its holder has just removed is nobody's: open the next.
                if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                    break
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {platform.node()}\n".encode(), 0)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            yield
        finally:
            # While we hold it: whoever has opened it meanwhile finds that it is gone.
            with contextlib.suppress(OSError):
                path.unlink()


def in_use(study: Path) -> bool:
    """Say whether a process is making launches in this folder."""
    try:
        pid, _, host = (study / LOCK_FILE).read_text().strip().partition(" ")
        if host == platform.node():
            os.kill(int(pid), 0)
    except PermissionError:  # somebody else's process
        return True
    except (OSError, ValueError):
        return False
    return True


def _lock(descriptor: int) -> bool:
    """Try to lock; return False when another process has it."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _held(path: Path, descriptor: int) -> str:
    pid, _, host = os.pread(descriptor, 300, 0).decode(errors="replace").strip().partition(" ")
    who = f"process {pid}" if pid else "another process"
    where = f" on {host}" if host and host != platform.node() else ""
    return (
        f"{path.parent} is in use by {who}{where}, another study. Wait until it ends, or choose "
        "another --out."
    )


# The study and its launches.


def is_study(path: Path) -> bool:
    """Tell whether a study, readable or not, is at this place."""
    try:
        (path / STUDY_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_new(path: Path) -> None:
    """Refuse a place for a new study at which there is something else."""
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(f"--out {path} is a file. Name a folder for the study.")
        if is_study(path):
            raise UsageError(
                f"--out {path} holds a study already. Name another folder, or continue that study "
                f"with --resume {path}."
            )
        # A study that was ended before its first file has left these, and nothing to lose.
        ours = (LAUNCHES, LOCK_FILE)
        others = [] if not path.exists() else [p for p in path.iterdir() if p.name not in ours]
    except OSError as error:
        raise UsageError(f"--out {path} cannot be read ({error.strerror}).") from error
    if others or launch_folders(path):
        raise UsageError(f"--out {path} is not empty. Name a new folder, or empty this one.")


def create_study(
    path: Path,
    *,
    label: str,
    command: Sequence[str],
    spec: Mapping[str, Any],
    machine: Mapping[str, Any],
    created: str | None = None,
) -> Study:
    """Begin a study in a folder that is empty or not there yet, and return it without launches."""
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
    _make_folder(path / LAUNCHES)
    write_head(study)
    return study


def write_head(study: Study) -> None:
    """Write study.json: the study without its launches and its link."""
    content = encode(study, leave=("path", "launches", "link", "apart", "notes"))
    write_json(Path(study.path) / STUDY_FILE, {"schema": SCHEMA, "kind": KIND, **content})


def mark_complete(study: Study, complete: bool = True) -> Study:
    """Record whether all planned launches have been made, and return the study so."""
    study = replace(study, complete=complete)
    write_head(study)
    return study


def new_launch_folder(study: Path, cell: Cell, repeat: int) -> Path:
    """Make the folder of the next launch, and in it the launch's own, `work`.

    Its name is the launch's id. Only for who holds the folder's lock.
    """
    number = max(map(_number, launch_folders(study)), default=0) + 1
    place = study / LAUNCHES / launch_id(number, cell, repeat)
    _make_folder(place / WORK)
    return place


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_launch(place: Path, launch: Launch, *, durable: bool = True) -> None:
    """Write launch.json, which makes a launch count; its ranks have written their own files."""
    _make_folder(place)
    content = {"schema": SCHEMA, **encode(launch, leave=("ranks",))}
    write_json(place / LAUNCH_FILE, content, durable=durable)


def write_rows(study: Path, launches: Sequence[Launch]) -> None:
    """Write the launches of a long imported table into one file, launches.jsonl."""
    cells = {cell: encode(cell) for cell in {launch.cell for launch in launches}}  # few
    dump = json.JSONEncoder(allow_nan=False).encode
    lines = []
    for launch in launches:
        row = {name: getattr(launch, name) for name in _ROW_FIELDS}
        metrics = [
            {"name": one.name, "value": number(one.value), "epoch": one.epoch}
            for one in launch.metrics
        ]
        row |= {"cell": cells[launch.cell], "figures": dict(launch.figures), "metrics": metrics}
        lines.append(dump({"schema": SCHEMA, **row}))
    write_text(study / ROWS_FILE, "\n".join([*lines, ""]), durable=False)


def write_link(study: Path, link: Link) -> None:
    """Write the calibration of what connects the workers."""
    write_json(study / LINK_FILE, {"schema": SCHEMA, **encode(link)})


def write_apart(study: Path, apart: Sequence[Apart]) -> None:
    """Write what workers did each for itself."""
    write_json(study / APART_FILE, {"schema": SCHEMA, "apart": encode(apart)})

"""Whether a launch went on from what an earlier one had written, which would spoil both.

Two kinds of evidence. Workers tell which files they open (`recorder/opened.py`); that misses
libraries that open files outside of Python, such as HDF5. For those the times of last access of
files under the working directory are compared, where the mount keeps them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from farandole.recorder.opened import is_checkpoint
from farandole.study.records import Opened

MOST_FILES = 20_000
LONGEST_S = 1.0

_SKIPPED = {".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", ".venv", "venv"}
_SKIPPED |= {".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
_SKIPPED |= {".cache", "wandb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What tells whether a file has been written to, or read."""

    inode: int
    size: int
    modified_ns: int
    accessed_ns: int

    def same_content(self, other: Stamp) -> bool:
        return (self.inode, self.size, self.modified_ns) == (
            other.inode,
            other.size,
            other.modified_ns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The files under some folders at one moment."""

    files: Mapping[str, Stamp] = field(default_factory=dict)
    complete: bool = True
    """Whether all were looked at; False when there were too many or it took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A file that one launch wrote and a later one read."""

    path: str
    writer: str
    """The id of the launch that wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a launch ran, in seconds since 1970."""

    launch: str
    began_unix_s: float
    ended_unix_s: float


def take_snapshot(
    roots: Iterable[Path],
    *,
    skip: Iterable[Path] = (),
    most_files: int = MOST_FILES,
    longest_s: float = LONGEST_S,
) -> Snapshot:
    """Look at all files under the roots, without following links.

    Args:
        roots: The script's working directory, the launch's own folder.
        skip: Folders to leave out, such as the study's own.
        most_files: Stop after so many.
        longest_s: Stop after so long.
    """
    left_out = {os.path.realpath(path) for path in skip}
    deadline_s = time.monotonic() + longest_s
    files: dict[str, Stamp] = {}
    # Nearest first: what a script writes lies seldom deep.
    folders = [os.path.realpath(root) for root in roots]
    for folder in folders:
        if time.monotonic() > deadline_s:
            return Snapshot(files=files, complete=False)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue  # it has gone, or is not ours to read
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED and entry.path not in left_out:
                    folders.append(entry.path)  # this loop reaches it later
            elif len(files) >= most_files:
                return Snapshot(files=files, complete=False)
            elif (stamp := _stamp(entry)) is not None:
                files[entry.path] = stamp
    return Snapshot(files=files)


def _stamp(entry: os.DirEntry[str]) -> Stamp | None:
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return Stamp(
        inode=found.st_ino,
        size=found.st_size,
        modified_ns=found.st_mtime_ns,
        accessed_ns=found.st_atime_ns,
    )


def written(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """Return the files that are new or changed, sorted.

    A file that an incomplete snapshot did not reach is not called new.
    """
    return tuple(
        sorted(
            path
            for path, stamp in after.files.items()
            if (
                before.complete
                if (old := before.files.get(path)) is None
                else not old.same_content(stamp)
            )
        )
    )


def read_between(before: Snapshot, after: Snapshot) -> tuple[Opened, ...]:
    """Return the checkpoints that were there before, did not change, and were accessed since."""
    return tuple(
        Opened(path=path, modified_unix_s=stamp.modified_ns / 1e9)
        for path, stamp in sorted(after.files.items())
        if is_checkpoint(path)
        and (old := before.files.get(path)) is not None
        and old.same_content(stamp)
        and stamp.accessed_ns > old.accessed_ns
    )


def written_by_workers(opened: Iterable[Opened]) -> tuple[str, ...]:
    """Return the checkpoints that workers opened for writing, wherever they lie."""
    return tuple(sorted({entry.path for entry in opened if entry.write}))


def written_during(spans: Iterable[Span], opened: Iterable[Opened]) -> dict[str, str]:
    """Return the checkpoints that were last written while an earlier launch ran, and its id.

    torch.save and other libraries write past Python, where no audit event tells; outside of the
    working directory only the time at which a file that is read was written tells whose it is.
    """
    return {
        entry.path: span.launch
        for entry in opened
        for span in spans
        if not entry.write
        and entry.modified_unix_s is not None
        and span.began_unix_s <= entry.modified_unix_s <= span.ended_unix_s
    }


def conflicts(
    earlier_written: Mapping[str, str], opened: Iterable[Opened], *, began_unix_s: float
) -> list[Conflict]:
    """Return what a launch read that an earlier one had written; pure.

    Args:
        earlier_written: Files to the ids of the launches of this study that wrote them last.
        opened: What the launch opened: told by its workers, or by `read_between`.
        began_unix_s: When the launch began. A file that it wrote itself before reading it back,
            the best weights at the end of training for one, has been modified since.
    """
    found = {
        entry.path: Conflict(path=entry.path, writer=earlier_written[entry.path])
        for entry in opened
        if not entry.write
        and entry.path in earlier_written
        and is_checkpoint(entry.path)
        and (entry.modified_unix_s is None or entry.modified_unix_s < began_unix_s)
    }
    return [found[path] for path in sorted(found)]


def sentence(conflict: Conflict, *, reader: str) -> str:
    """Say what happened and what to pass."""
    return (
        f"Launch {reader} read {conflict.path}, which launch {conflict.writer} of this study "
        "wrote: it went on from there instead of starting afresh, so that its figures are not "
        "comparable. Give each launch its own folder: --cwd cell, or have the script write to "
        "{cell_dir} (python train.py --checkpoint-dir '{cell_dir}')."
    )

"""What a launch shows that would make its study worthless: said before hours are spent.

One reason is a launch that went on from what an earlier one had written. Two kinds of evidence.
Workers tell which files they open (`recorder/opened.py`); that misses libraries that open files
outside of Python, such as HDF5. For those the times of last access of files under the working
directory are compared, where the mount keeps them.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from farandole.errors import FarandoleError, UsageError
from farandole.format import plural
from farandole.launch.slurm.client import REFUSED
from farandole.recorder.opened import is_checkpoint
from farandole.study.folder import OUTPUT_FILE, write_json
from farandole.study.progress import cell_words
from farandole.study.records import Launch, Opened
from farandole.study.spec import Spec


class StudyRefusedError(FarandoleError, RuntimeError):
    """A study that would measure something else than it says; the message says what to change."""


def batch_seen(launch: Launch) -> int | None:
    """Return the samples of the first training batch that rank 0 had; None when nobody looked."""
    seen = [rank.batch_seen for rank in launch.ranks if rank.batch_seen is not None]
    return seen[0] if seen else None


def batch_mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say that a script trained with another batch than its cell's, with both numbers."""
    seen, wanted = batch_seen(launch), launch.cell.batch
    if not (spec.sets_batch and spec.batch_check) or seen is None or wanted in (None, seen):
        return None
    if seen * launch.cell.workers == wanted:
        why = "The script divides the batch among the workers itself: pass it {global_batch}."
    elif wanted is not None and seen > wanted and seen == wanted * launch.cell.workers:
        why = "The script multiplies the batch by the workers itself."
    elif wanted is not None and seen < wanted:
        why = "Its data may be too few for such a batch, or its flag does not reach the loader."
    else:
        why = "Check that the flag reaches the loader."
    return (
        f"the cell has a batch of {wanted} per worker, but the script trained with {seen}. {why} "
        "(--no-batch-check to go on all the same)"
    )


def workers_mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say that a launcher of the command's own started another number of workers than the cell's.

    Two workers that are one would pass for a speedup of 1, or of 2 where samples are not counted.
    """
    sizes = [rank.size for rank in launch.ranks if rank.size is not None and len(rank.steps)]
    if spec.launcher is None or not sizes or sizes[0] == launch.cell.workers:
        return None
    return (
        f"the cell has {plural(launch.cell.workers, 'worker')}, but "
        f"{spec.launcher} started {sizes[0]}. Put {{workers}} where it takes their number, or "
        "leave the launcher away: then Farandole starts the workers"
    )


def mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say what of a launch that trained was not as its cell has it."""
    return workers_mismatch(spec, launch) or batch_mismatch(spec, launch)


def never_trained(spec: Spec, launch: Launch) -> str | None:
    """Say what was expected of a script that ended well without a single step."""
    if launch.outcome not in ("ok", "stopped") or launch.figures or launch.metrics:
        return None
    if any(len(rank.steps) for rank in launch.ranks):
        return None
    if any(rank.metrics for rank in launch.ranks):
        return None
    looked = "No line of its output matched --throughput or --metric either. " * bool(
        spec.throughput or spec.metrics
    )
    return (
        "The script ended without a training step that could be seen. Expected were calls of a "
        "torch optimizer's step() (or Keras' fit) in the workers' own Python. "
        f"{looked}Figures that it prints can be read by --throughput 'img/sec: ([0-9.]+)'."
    )


def refuse(spec: Spec, launch: Launch, done: Sequence[Launch], place: Path) -> None:
    """Stop a study whose first launch shows that it would measure something else, or nothing.

    Raises:
        StudyRefusedError: It would.
        UsageError: SLURM does not take its jobs.
    """
    if done:
        return
    if spec.jobs and launch.reason.startswith(REFUSED):
        raise UsageError(f"{launch.reason}. Change --sbatch.")
    other = mismatch(spec, launch)
    if other is not None:
        raise StudyRefusedError(f"{cell_words(launch.cell)}: {other}.")
    nothing = never_trained(spec, launch)
    if nothing is not None:
        raise StudyRefusedError(f"{nothing} Its output is in {place / OUTPUT_FILE}.")


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


_FILE = "written.json"
# A part of the second that a cell may cost beyond its training.
_LONGEST_S = 0.3


class Files:
    """Knows which launch wrote what, also after the study was interrupted."""

    def __init__(self, study: Path, folder: Path) -> None:
        """Look at the folder in which the script runs.

        Args:
            study: The study's own folder, which is left out.
            folder: Where the script runs.
        """
        self._study, self._folder = study, folder
        self._written: dict[str, str] = {}
        self._spans: list[Span] = []
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((study / _FILE).read_text())
            self._written = dict(known["files"])
            self._spans = [Span(**span) for span in known["spans"]]
        self._before = self._look()

    def check(self, launch: Launch, *, began_unix_s: float) -> None:
        """Take note of what a launch wrote, and stop the study if it read what another wrote.

        Raises:
            StudyRefusedError: It did; the message names the file.
        """
        after = self._look()
        opened = [entry for rank in launch.ranks for entry in rank.opened]
        found = conflicts(
            written_during(self._spans, opened) | self._written,
            [*opened, *read_between(self._before, after)],
            began_unix_s=began_unix_s,
        )
        if found:
            raise StudyRefusedError(sentence(found[0], reader=launch.id))
        fresh = {*written(self._before, after), *written_by_workers(opened)}
        self._before = after
        self._written |= dict.fromkeys(sorted(fresh), launch.id)
        self._spans.append(
            Span(launch=launch.id, began_unix_s=began_unix_s, ended_unix_s=time.time())
        )
        known = {"files": self._written, "spans": [asdict(span) for span in self._spans]}
        write_json(self._study / _FILE, known, durable=False)

    def _look(self) -> Snapshot:
        return take_snapshot([self._folder], skip=[self._study], longest_s=_LONGEST_S)

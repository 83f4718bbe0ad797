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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farandole.errors import FarandoleError, UsageError
from farandole.format import plural
from farandole.launch.slurm_jobs import REFUSED
from farandole.recorder.checkpoints import is_checkpoint
from farandole.study.folder import OUTPUT_FILE, write_json
from farandole.study.progress import cell_words
from farandole.study.records import Launch, Opened
from farandole.study.spec import Spec


class StudyRefusedError(FarandoleError, RuntimeError):
    """A study that would measure something else than it says; the message says what to change."""


def batch_seen(launch: Launch) -> int | None:
    """Return the samples of the first training batch that rank 0 had; None when nobody looked."""
    return next((r.batch_seen for r in launch.ranks if r.batch_seen is not None), None)


def batch_mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say that a script trained with another batch than its cell's, with both numbers."""
    seen, wanted = batch_seen(launch), launch.cell.batch
    if not (spec.sets_batch and spec.batch_check) or seen is None or wanted in (None, seen):
        return None
    why = "Check that the flag reaches the loader."
    if seen * launch.cell.workers == wanted:
        why = "The script divides the batch among the workers itself: pass it {global_batch}."
    elif seen == launch.cell.global_batch:
        why = "The script multiplies the batch by the workers itself."
    elif wanted is not None and seen < wanted:
        why = (
            "There may be too little data for such a batch, or the flag does not reach the loader."
        )
    return (
        f"the cell has a batch of {wanted} per worker, but the script trained with {seen}. {why} "
        "(--no-batch-check accepts it)"
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
        "leave out the launcher: Farandole starts the workers itself"
    )


def mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say what of a launch that trained was not as its cell has it."""
    return workers_mismatch(spec, launch) or batch_mismatch(spec, launch)


def never_trained(spec: Spec, launch: Launch) -> str | None:
    """Say what was expected of a script that ended well without a single step."""
    if not launch.succeeded or launch.figures or launch.metrics:
        return None
    if any(len(rank.steps) or rank.metrics for rank in launch.ranks):
        return None
    looked = "No line of its output matched --throughput or --metric either. " * bool(
        spec.throughput or spec.metrics
    )
    return (
        "The script ended without a training step that Farandole could see: no call of a torch "
        "optimizer's step() or of Keras' fit() in the workers' own Python. "
        f"{looked}To read figures that it prints, use --throughput 'img/sec: ([0-9.]+)'."
    )


def refuse(spec: Spec, launch: Launch, done: Sequence[Launch], place: Path) -> None:
    """Stop a study whose first launch shows that it would measure something else, or nothing."""
    if done:
        return
    if spec.jobs and launch.reason.startswith(REFUSED):
        raise UsageError(f"{launch.reason}. Change --sbatch.")
    if other := mismatch(spec, launch):
        raise StudyRefusedError(f"{cell_words(launch.cell)}: {other}.")
    if nothing := never_trained(spec, launch):
        raise StudyRefusedError(f"{nothing} Its output is in {place / OUTPUT_FILE}.")


# Launches that feed each other.

_FILE = "written.json"
_MOST_FILES = 20_000
# A part of the second that a cell may cost beyond its training.
_LONGEST_S = 0.3
_SKIPPED = {".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", ".venv", "venv"}
_SKIPPED |= {".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
_SKIPPED |= {".cache", "wandb"}


class Snapshot:
    """The files under a folder at one moment, without following links."""

    def __init__(self, root: Path, *, skip: Path, most_files: int = _MOST_FILES) -> None:
        """Look at all files under the root."""
        self.files: dict[str, os.stat_result] = {}
        self.complete = False
        """Whether all were looked at; False when there were too many or it took too long."""
        left_out = os.path.realpath(skip)
        deadline_s = time.monotonic() + _LONGEST_S
        # Nearest first: what a script writes lies seldom deep.
        folders = [os.path.realpath(root)]
        for folder in folders:
            if time.monotonic() > deadline_s:
                return
            # What has gone, or is not ours to read, is passed over.
            with contextlib.suppress(OSError):
                for entry in list(os.scandir(folder)):
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED and entry.path != left_out:
                            folders.append(entry.path)  # this loop reaches it later
                    elif len(self.files) >= most_files:
                        return
                    elif entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(OSError):
                            self.files[entry.path] = entry.stat(follow_symlinks=False)
        self.complete = True

    def changed(self, before: Snapshot) -> set[str]:
        """Return what is new or was written to; not what an incomplete look may have missed."""
        known = before.files
        return {
            path
            for path, stat in self.files.items()
            if (_content(known[path]) != _content(stat) if path in known else before.complete)
        }

    def accessed(self, before: Snapshot) -> list[Opened]:
        """Return the checkpoints that did not change, and were read since."""
        return [
            Opened(path=path, modified_unix_s=stat.st_mtime)
            for path, stat in self.files.items()
            if is_checkpoint(path)
            and (old := before.files.get(path)) is not None
            and _content(old) == _content(stat)
            and stat.st_atime_ns > old.st_atime_ns
        ]


def _content(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class Files:
    """Knows which launch wrote what, also after the study was interrupted."""

    def __init__(self, study: Path, folder: Path) -> None:
        """Look at the folder in which the script runs."""
        self._study, self._folder = study, folder
        self._written: dict[str, str] = {}
        """Files, and the ids of the launches that wrote them last."""
        self._spans: list[dict[str, Any]] = []
        """When each launch ran."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((study / _FILE).read_text())
            self._written, self._spans = dict(known["files"]), list(known["spans"])
        self._before = Snapshot(folder, skip=study)

    def check(self, launch: Launch, *, began_unix_s: float) -> None:
        """Take note of what a launch wrote, and stop the study if it read what another wrote."""
        after = Snapshot(self._folder, skip=self._study)
        opened = [entry for rank in launch.ranks for entry in rank.opened]
        read = [entry for entry in opened if not entry.write] + after.accessed(self._before)
        for entry in sorted(read, key=lambda entry: entry.path):
            modified_s, writer = entry.modified_unix_s, self._writer(entry)
            # What it wrote itself before reading it back, the best weights for one, is its own.
            own = modified_s is not None and modified_s >= began_unix_s
            if writer is not None and not own and is_checkpoint(entry.path):
                raise StudyRefusedError(
                    f"Launch {launch.id} read {entry.path}, which launch {writer} of this study "
                    "wrote: it continued from there instead of starting fresh, so its figures are "
                    "not comparable. Give each launch its own folder: --cwd cell, or have the "
                    "script write to {cell_dir} (python train.py --checkpoint-dir '{cell_dir}')."
                )
        fresh = after.changed(self._before) | {entry.path for entry in opened if entry.write}
        self._before = after
        self._written |= dict.fromkeys(sorted(fresh), launch.id)
        span = {"launch": launch.id, "began_unix_s": began_unix_s, "ended_unix_s": time.time()}
        self._spans.append(span)
        known = {"files": self._written, "spans": self._spans}
        write_json(self._study / _FILE, known, durable=False)

    def _writer(self, entry: Opened) -> str | None:
        """Return the launch that wrote a file.

        torch.save and other libraries write past Python, where no audit event tells; outside of
        the working directory only the time at which a file was written tells whose it is.
        """
        if entry.path in self._written or entry.modified_unix_s is None:
            return self._written.get(entry.path)
        for span in self._spans:
            if span["began_unix_s"] <= entry.modified_unix_s <= span["ended_unix_s"]:
                return str(span["launch"])
        return None

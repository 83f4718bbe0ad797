"""Tell which checkpoints this worker opens, so that launches which feed each other are found.

An audit hook sees every file that Python opens, and cannot be removed again: it is short, and does
nothing for all but a few paths.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

Emit = Callable[[dict[str, Any]], None]
"""Takes the fields of one `opened` line."""

MOST_PATHS = 1000
"""Data may come in files that look like checkpoints; nobody needs all of their names."""

SUFFIXES = (
    ".pt", ".pth", ".ckpt", ".h5", ".hdf5", ".keras", ".safetensors", ".npz", ".pkl", ".pickle",
    ".joblib", ".index", ".bin",
)  # fmt: skip
# Of any program's files those are checkpoints only where the name says so.
_VAGUE = (".index", ".bin")
_FOLDER = re.compile(r"(?:^|/)(?:checkpoint|ckpt)[^/]*/")
_NAMED = re.compile(r"(?:^|/)[^/]*(?:checkpoint|ckpt|weights|model)[^/]*$")
# Prepared data are meant to be shared between launches.
_DATA = {"data", "dataset", "datasets", "processed", "raw", "cache", ".cache", "caches"}
_WRITING = os.O_WRONLY | os.O_RDWR


def is_checkpoint(path: str) -> bool:
    """Tell whether a path looks like a checkpoint, and not like data, a cache or a package."""
    name = path.replace(os.sep, "/").lower()
    if "/site-packages/" in name or "/dist-packages/" in name:
        return False
    if _FOLDER.search(name):
        return True
    if not name.endswith(SUFFIXES):
        return False
    if name.endswith(_VAGUE) and not _NAMED.search(name):
        return False
    # Only the nearest folders: a cluster's disks may be mounted at /data.
    return not _DATA.intersection(name.split("/")[-3:-1])


def _may_be(path: str) -> bool:
    """Sort out most files in a fraction of what `is_checkpoint` takes."""
    end = path[-12:].lower()  # the longest suffix is .safetensors
    return end.endswith(SUFFIXES) or "checkpoint" in path.lower() or "ckpt" in path.lower()


def follow(when_opened: Callable[[Callable[[Any], None]], None]) -> None:
    """Watch this process from now on, and tell its recorder as soon as there is one.

    A checkpoint is read before the first step, and the recorder opens with that.
    """
    watch = install()
    when_opened(lambda recorder: watch.connect(lambda fields: recorder.tell("opened", **fields)))


def install() -> Watch:
    """Take note of each checkpoint that this process reads or writes from now on."""
    watch = Watch()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path = arguments[0]
            if not isinstance(path, str) or _may_be(path):
                watch.opened(arguments)
        elif event == "os.rename":
            watch.renamed(arguments)

    sys.addaudithook(hook)
    return watch


class Watch:
    """Tells of each path once, and keeps what it has to tell until somebody listens.

    Only in this process, not in those that it forks.
    """

    def __init__(self) -> None:
        self._emit: Emit | None = None
        self._kept: list[dict[str, Any]] = []
        self._told: set[tuple[str, bool]] = set()
        self._pid = os.getpid()
        self._inside = False

    def connect(self, emit: Emit) -> None:
        """Tell from now on by `emit`, beginning with what was kept."""
        kept, self._kept, self._emit = self._kept, [], emit
        for fields in kept:
            emit(fields)

    def opened(self, arguments: tuple[Any, ...]) -> None:
        """Take the arguments of an audit event `open`."""
        path, mode, flags = arguments
        if isinstance(path, str | os.PathLike | bytes):
            write = bool(flags & _WRITING) if mode is None else writes(str(mode))
            self._tell(path, write)

    def renamed(self, arguments: tuple[Any, ...]) -> None:
        """Take the arguments of an audit event `os.rename`."""
        # Careful scripts write under a temporary name: what they wrote is where it ends.
        self._tell(arguments[1], True)

    def _tell(self, path: Any, write: bool) -> None:
        # `emit` may open its own file; and whatever fails here must not fail the user's open().
        if self._inside:
            return
        self._inside = True
        try:
            name = os.fsdecode(path)
            if not is_checkpoint(name) or os.getpid() != self._pid:
                return
            name = os.path.realpath(name)
            if (name, write) in self._told or len(self._told) >= MOST_PATHS:
                return
            fields: dict[str, Any] = {"path": name, "write": write}
            if not write:
                fields["modified_unix_s"] = os.stat(name).st_mtime  # noqa: PTH116  kept cheap
            self._told.add((name, write))
            (self._emit or self._kept.append)(fields)
        except Exception:
            pass
        finally:
            self._inside = False


def writes(mode: str) -> bool:
    """Say whether a mode of open() writes."""
    return any(letter in mode for letter in "wax+")

"""Processes that a launch left behind: found by a variable that all of them inherited."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from farandole.recorder.settings import RECORD_DIR

_GRACE_S = 2.0
_POLL_S = 0.02


def leftovers(folder: Path, proc: Path = Path("/proc"), *, variable: str = RECORD_DIR) -> list[int]:
    """List processes of ours whose variable names this folder, or one below it.

    Only launchers that are not ours leave any: torchrun starts its workers in sessions of their
    own, which no signal to its group reaches.
    """
    mark = f"\0{variable}={folder}".encode()
    found = []
    try:
        entries = os.listdir(proc)  # noqa: PTH208 - over all processes
    except OSError:
        return []
    for entry in entries:
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # not ours, or it has just ended
            environ = b"\0" + (proc / entry / "environ").read_bytes()
            _, here, rest = environ.partition(mark)
            if here and rest[:1] in (b"\0", b"/", b""):
                found.append(int(entry))
    return found


def end_leftovers(folder: Path, *, variable: str = RECORD_DIR) -> int:
    """End what still records into this folder, and return how many processes that were."""
    found = leftovers(folder, variable=variable)
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for pid in leftovers(folder, variable=variable):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signum)
        deadline_s = time.monotonic() + _GRACE_S
        while leftovers(folder, variable=variable):
            if time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_S)
        else:
            break
    return len(found)

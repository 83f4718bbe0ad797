"""The Python stack of another process of this host, whatever that is doing.

Each worker lets faulthandler write its stack to a nameless file when a signal comes. That works
inside of native code too, and when the interpreter is held by another thread.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from pathlib import Path

# Nobody's: SLURM and users send SIGUSR1 and SIGUSR2, and the C library keeps the first of these.
_OFFSET = 11
_POLL_S = 0.005
# What a dump takes from its first line to its last on a crowded machine.
_SETTLED_S = 0.05
_MOST_LINES = 30

_offered: dict[int, str] = {}


def offer() -> str:
    """Let peers ask for this process's stack; return where they find it, "" if that cannot be.

    Stays until the process ends: a signal that came after it was withdrawn would end it.
    """
    pid = os.getpid()
    if pid not in _offered:
        _offered[pid] = ""
        if hasattr(os, "memfd_create") and hasattr(signal, "SIGRTMIN"):
            fd = os.memfd_create("stack", os.MFD_CLOEXEC)
            faulthandler.register(signal.SIGRTMIN + _OFFSET, file=fd, all_threads=True)
            _offered[pid] = f"/proc/{pid}/fd/{fd}"
    return _offered[pid]


def ask(path: str, *, timeout_s: float = 1.0) -> list[str]:
    """Return where the main thread of the process is that offered this path.

    Returns:
        Lines, the most recent call first; none if the process does not answer.
    """
    found = re.fullmatch(r"/proc/(\d+)/fd/\d+", path)
    if found is None:
        return []
    pid = int(found[1])
    try:
        with Path(path).open("rb") as file:
            begin = file.seek(0, os.SEEK_END)
            if not _would_answer(pid):
                return []
            os.kill(pid, signal.SIGRTMIN + _OFFSET)
            _wait_until_settled(file.fileno(), begin, timeout_s)
            file.seek(begin)
            dump = file.read().decode(errors="replace")
            return shortened(from_the_users_call(main_thread(dump)))
    except OSError:
        return []


def main_thread(dump: str) -> list[str]:
    """Choose the main thread of faulthandler's dump, which shows the newest thread first."""
    threads = re.split(r"\n\s*\n|(?m:^)(?=Thread 0x|Current thread 0x)", dump)
    blocks = [
        [line for line in block.splitlines() if line.startswith("  File ")] for block in threads
    ]
    return next((block for block in reversed(blocks) if block), [])


def from_the_users_call(lines: list[str]) -> list[str]:
    """Leave out what Farandole does inside of the function that the script has called."""
    own = f'  File "{Path(__file__).parents[2]}{os.sep}'
    inside = next((n for n, line in enumerate(lines) if not line.startswith(own)), len(lines))
    return lines[max(inside - 1, 0) :]


def shortened(lines: list[str]) -> list[str]:
    """Leave out the outermost of many calls."""
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"  and {more} calls more"] if more > 0 else lines


def _would_answer(pid: int) -> bool:
    """Say whether a process has a handler: to one without it the signal would be the end."""
    bit = 1 << (signal.SIGRTMIN + _OFFSET - 1)
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & bit)
    return False


def _wait_until_settled(fd: int, begin: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    size, since = begin, time.monotonic()
    while (now := time.monotonic()) < deadline:
        grown = os.fstat(fd).st_size
        if grown != size:
            size, since = grown, now
        elif size > begin and now - since > _SETTLED_S:
            return
        time.sleep(_POLL_S)

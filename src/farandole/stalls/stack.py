"""The Python stack of another process of this host, whatever that is doing.

A thread of each worker writes the main thread's stack to a nameless file when a byte comes through
a pipe. Where native code keeps the interpreter, that thread cannot run: then faulthandler does it
on a signal. Only then, and only for the main thread, which stands still in native code: the frames
of a thread that runs are freed while a signal handler reads them, which ended ranks by SIGSEGV.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

# Nobody's: SLURM and users send SIGUSR1 and SIGUSR2, and the C library keeps the first of these.
_OFFSET = 11
_POLL_S = 0.005
# What a dump takes from its first line to its last on a crowded machine.
_SETTLED_S = 0.05
_MOST_LINES = 30
# Of one thread, as faulthandler writes it.
_HEADER = "Stack (most recent call first):"

_offered: dict[int, str] = {}


def offer() -> str:
    """Let peers ask for this process's stack; return where they find it, "" if that cannot be.

    Stays until the process ends: a signal that came after it was withdrawn would end it.
    """
    pid = os.getpid()
    if pid not in _offered:
        _offered[pid] = ""
        if hasattr(os, "memfd_create") and hasattr(signal, "SIGRTMIN"):
            signum = signal.SIGRTMIN + _OFFSET
            fd = os.memfd_create("stack", os.MFD_CLOEXEC)
            requests, ask_here = os.pipe()
            threading.Thread(
                target=_answer, args=(requests, fd), name="farandole-stack", daemon=True
            ).start()
            faulthandler.unregister(signum)  # a forked process has its parent's handler
            with contextlib.suppress(ValueError):  # only the main thread can
                # In force again once Python ends and takes faulthandler down: a late signal would
                # otherwise end the process.
                signal.signal(signum, signal.SIG_IGN)
            faulthandler.register(signum, file=fd, all_threads=False)
            _offered[pid] = f"/proc/{pid}/fd/{fd},{ask_here}"
    return _offered[pid]


def ask(path: str, *, timeout_s: float = 1.0) -> list[str]:
    """Return where the main thread of the process is that offered this path.

    Args:
        path: What `offer` returned there.
        timeout_s: What its thread gets to answer, and after that faulthandler.

    Returns:
        Lines, the most recent call first; none if the process does not answer.
    """
    found = re.fullmatch(r"(/proc/(\d+)/fd/)(\d+),(\d+)", path)
    if found is None:
        return []
    folder, pid, fd, ask_here = found[1], int(found[2]), found[3], found[4]
    try:
        with Path(folder, fd).open("rb") as file:
            begin = file.seek(0, os.SEEK_END)
            if not _would_answer(pid):
                return []
            _write_to(Path(folder, ask_here))
            if not _wait_until_settled(file.fileno(), begin, timeout_s):
                _signal_main_thread(pid)
                _wait_until_settled(file.fileno(), begin, timeout_s)
            file.seek(begin)
            dump = file.read().decode(errors="replace")
            return shortened(from_the_users_call(_frames(dump)))
    except OSError:
        return []


def from_the_users_call(lines: list[str]) -> list[str]:
    """Leave out what Farandole does inside of the function that the script has called."""
    own = f'  File "{Path(__file__).parents[2]}{os.sep}'
    inside = next((n for n, line in enumerate(lines) if not line.startswith(own)), len(lines))
    return lines[max(inside - 1, 0) :]


def shortened(lines: list[str]) -> list[str]:
    """Leave out the outermost of many calls."""
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"  and {more} calls more"] if more > 0 else lines


def _answer(requests: int, fd: int) -> None:
    """Write the main thread's stack whenever somebody asks; runs in a thread."""
    main = threading.main_thread().ident
    while os.read(requests, 1):
        lines = [_HEADER]
        frame = sys._current_frames().get(main or 0)
        while frame is not None:
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
            frame = frame.f_back
        os.write(fd, "\n".join([*lines, ""]).encode(errors="replace"))


def _write_to(pipe: Path) -> None:
    fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with contextlib.suppress(BlockingIOError):  # nobody has read for long
            os.write(fd, b"?")
    finally:
        os.close(fd)


def _frames(dump: str) -> list[str]:
    """Choose the last stack: two peers may have asked at once."""
    last = dump.rpartition(_HEADER)[2]
    return [line for line in last.splitlines() if line.startswith("  File ")]


def _signal_main_thread(pid: int) -> None:
    """Send the signal to the thread whose number is the process's; the kernel may else choose."""
    tgkill = getattr(ctypes.CDLL(None, use_errno=True), "tgkill", None)  # glibc 2.30 and later
    if tgkill is None:
        os.kill(pid, signal.SIGRTMIN + _OFFSET)
    elif tgkill(pid, pid, signal.SIGRTMIN + _OFFSET):
        raise OSError(ctypes.get_errno(), "tgkill")


def _would_answer(pid: int) -> bool:
    """Say whether a process has a handler: to one without it the signal would be the end."""
    bit = 1 << (signal.SIGRTMIN + _OFFSET - 1)
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & bit)
    return False


def _wait_until_settled(fd: int, begin: int, timeout_s: float) -> bool:
    """Wait for an answer, and until it is whole; say whether there is any."""
    deadline = time.monotonic() + timeout_s
    size, since = begin, time.monotonic()
    while (now := time.monotonic()) < deadline:
        grown = os.fstat(fd).st_size
        if grown != size:
            size, since = grown, now
        elif size > begin and now - since > _SETTLED_S:
            return True
        time.sleep(_POLL_S)
    return size > begin

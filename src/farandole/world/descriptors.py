"""File descriptors: how many a process may open, and what to say when there are no more.

The soft limit is raised as far as is needed, and no further: processes that workers start inherit
it, and programs that use select() cannot handle descriptors from 1024 on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

# What a script and its libraries open besides: data files, loader processes, sockets.
_SPARE = 128


def reserve_descriptors(count: int) -> str:
    """Make sure that this process can open so many more files; return why it cannot, or ''."""
    limit = soft_limit()
    try:
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough
    except OSError as error:
        return out_of_descriptors(error)  # else nobody tells how many are open
    if limit is None or used + count + _SPARE <= limit:
        return ""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = used + count + _SPARE
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    if most > limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            limit = most
    if used + count <= limit:
        return ""
    return _shortage(limit, f": {used} are open and {count} more are needed")


def out_of_descriptors(error: OSError) -> str:
    """Say that an error means that descriptors have run out; '' if it means something else."""
    if error.errno == errno.EMFILE:
        return _shortage(soft_limit(), "")
    if error.errno == errno.ENFILE:
        return "out of file descriptors: this host has none left (sysctl fs.file-max)."
    return ""


def soft_limit() -> int | None:
    """Return how many files this process may have open; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _shortage(limit: int | None, details: str) -> str:
    return (
        f"out of file descriptors (ulimit -n {limit}){details}. Raise the limit before you start "
        "the job, for example with ulimit -n 4096."
    )

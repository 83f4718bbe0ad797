"""One study at a time in one folder."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from farandole.errors import UsageError
from farandole.study.atomic import cannot_write
from farandole.study.folder import LOCK_FILE

# Network file systems without locks: better a study than none.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextlib.contextmanager
def locked(study: Path) -> Iterator[None]:
    """Hold the folder for this process; the kernel lets go of it however the process ends.

    Raises:
        UsageError: Another process holds it; the message has its number.
        StoreError: The folder cannot be written to.
    """
    path = study / LOCK_FILE
    descriptor = _acquire(path)
    try:
        yield
    finally:
        # While we hold it: whoever has opened it meanwhile finds that it is gone, and tries again.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _acquire(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if not _lock(descriptor):
                    raise _held(path, descriptor)
                if _is_there(path, descriptor):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"{os.getpid()} {platform.node()}\n".encode(), 0)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    except OSError as error:
        raise cannot_write(path, error) from error


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


def _is_there(path: Path, descriptor: int) -> bool:
    """Tell whether the file that is locked is still the one at this path."""
    mine = os.fstat(descriptor)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _held(path: Path, descriptor: int) -> UsageError:
    pid, _, host = os.pread(descriptor, 300, 0).decode(errors="replace").strip().partition(" ")
    who = f"process {pid}" if pid else "another process"
    where = f" on {host}" if host and host != platform.node() else ""
    return UsageError(
        f"{path.parent} is in use by {who}{where}, another study. Wait until it ends, or choose "
        "another --out."
    )

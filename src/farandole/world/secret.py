"""The secret of a job whose workers no launcher of ours started: from a file, never from argv.

Workers of `srun python train.py` share a job number, which everybody can see, and the user's home,
which nobody else can read. A key that is made there once, together with the job's number, is a
secret of that job alone.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from farandole.errors import StartError, UsageError

VARIABLE = "FARANDOLE_SECRET_FILE"
_KEY_BYTES = 32
_LEAST_BYTES = 16
# A key fits easily; what is longer is another file.
_MOST_BYTES = 64 * 1024


def job_secret(environ: Mapping[str, str], job: str) -> bytes:
    """Return what the workers of this job, and nobody else, can know.

    Args:
        environ: Where FARANDOLE_SECRET_FILE, XDG_STATE_HOME and HOME are looked for.
        job: What names this job and no other, such as SLURM's job and step.

    Raises:
        UsageError: FARANDOLE_SECRET_FILE cannot be used.
        StartError: The user's own key can be neither made nor read.
    """
    content = _read(given) if (given := secret_file(environ)) else _own_key(key_file(environ))
    key = hashlib.blake2b(content, digest_size=64).digest()
    return hashlib.blake2b(job.encode(), key=key, digest_size=32).digest()


def secret_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file that the user names; None without one."""
    text = environ.get(VARIABLE)
    return Path(text) if text else None


def key_file(environ: Mapping[str, str]) -> Path:
    """Return where the user's own key lies."""
    state = environ.get("XDG_STATE_HOME") or ""
    folder = Path(state) if state else Path(environ.get("HOME") or Path.home()) / ".local/state"
    return folder / "farandole" / "key"


def source(environ: Mapping[str, str]) -> str:
    """Say where this worker's secret comes from, for messages."""
    given = secret_file(environ)
    return f"{VARIABLE}={given}" if given else str(key_file(environ))


def _read(path: Path) -> bytes:
    """Read the user's file, unless others could have read or written it too."""
    try:
        # The same descriptor for the look and for the reading: nobody can change files in between.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            f"{VARIABLE}={path} cannot be read ({error.strerror}). Name a file that this host has, "
            "or unset it."
        ) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{VARIABLE}={path} is not a file. Name one, or unset it.")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077 or status.st_uid not in (os.getuid(), 0):
            raise UsageError(
                f"{VARIABLE}={path} must be yours alone, but its mode is {mode:04o} and its owner "
                f"is user {status.st_uid}. Make it so: chmod 600 {path}"
            )
        content = os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
    if len(content) < _LEAST_BYTES:
        raise UsageError(
            f"{VARIABLE}={path} has {len(content)} bytes, and a secret needs {_LEAST_BYTES}. "
            f"Make one: head -c 32 /dev/urandom > {path}"
        )
    return content


def _own_key(path: Path) -> bytes:
    """Read the user's key; whoever comes first makes it."""
    try:
        if not path.exists():
            _make(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise StartError(
            f"The key {path} cannot be made or read ({error.strerror}). Set {VARIABLE} to a file "
            "that all hosts of the job have, with mode 0600."
        ) from error
    if status.st_mode & 0o077 or status.st_uid != os.getuid() or len(content) < _LEAST_BYTES:
        raise StartError(
            f"{path} must be a file of yours that nobody else can read, and is not. Remove it: "
            "a new key is made by the next job."
        )
    return content


def _make(path: Path) -> None:
    """Make a key that appears whole, and only where none is."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=".key-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link appears on every host at once, or fails because another worker was first.
            os.link(fresh, path)
        except FileExistsError:
            return
    finally:
        os.unlink(fresh)  # noqa: PTH108

"""What a worker of `farandole.run(fn)` runs: the function comes and its value goes by inheritance.

Both travel in anonymous files that the launcher made and handed down: they have no name, and no
other user or process can reach them. Where an agent of another host starts the workers, they are
in a private folder of that host.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

CALL_FD = "FARANDOLE_CALL_FD"
RESULT_FD = "FARANDOLE_RESULT_FD"
CALL_FOLDER = "FARANDOLE_CALL_FOLDER"
"""Where they are instead, on hosts that inherit nothing from the launcher."""


@contextlib.contextmanager
def call_folder(call: bytes) -> Iterator[Path]:
    """Make a folder that workers of this host find a call in, and leave their answers."""
    import tempfile

    # Only its user can enter it.
    with tempfile.TemporaryDirectory(prefix="farandole-call-") as folder:
        Path(folder, "call").write_bytes(call)
        yield Path(folder)


def main() -> None:
    """Call the function and leave its value, or its traceback, for the launcher."""
    import pickle

    # A folder may be that of an outer launch; descriptors are of the nearest one.
    if CALL_FD in os.environ:
        call = _read_all(int(os.environ[CALL_FD]))
    else:
        call = Path(os.environ[CALL_FOLDER], "call").read_bytes()
    # Plain strings first: the function may be importable only along the launcher's paths.
    path, function = pickle.loads(call)
    sys.path[:] = [entry for entry in path if entry not in sys.path] + sys.path
    import cloudpickle

    try:
        fn, args, kwargs = pickle.loads(function)
        answer = ("value", cloudpickle.dumps(fn(*args, **kwargs)))
    except BaseException:
        import traceback

        _write(("traceback", traceback.format_exc().encode(errors="replace")))
        raise
    _write(answer)


def _read_all(fd: int) -> bytes:
    # All workers share one file and its position: pread has its own.
    length = os.fstat(fd).st_size
    parts, place = [], 0
    while place < length:
        part = os.pread(fd, length - place, place)
        if not part:
            break
        parts.append(part)
        place += len(part)
    return b"".join(parts)


def _write(answer: tuple[str, bytes]) -> None:
    import pickle

    data = pickle.dumps(answer)
    if RESULT_FD in os.environ:
        with os.fdopen(int(os.environ[RESULT_FD]), "wb") as file:
            file.write(data)
    else:
        name = f"answer-{os.environ['FARANDOLE_RANK']}"
        Path(os.environ[CALL_FOLDER], name).write_bytes(data)


if __name__ == "__main__":
    main()

"""What a worker of `farandole.run(fn)` runs: the function comes and its value goes by inheritance.

Both travel in anonymous files that the launcher made and handed down: they have no name, and no
other user or process can reach them. Where an agent of another host starts the workers, they are
in a private folder of that host.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALL_FD = "FARANDOLE_CALL_FD"
RESULT_FD = "FARANDOLE_RESULT_FD"
CALL_FOLDER = "FARANDOLE_CALL_FOLDER"
"""The name of the folder, on hosts that inherit nothing from the launcher."""


@contextlib.contextmanager
def call_folder(name: str, call: bytes) -> Iterator[Path]:
    """Make the folder that workers of this host find a call in, and leave their answers."""
    import shutil

    folder = _folder(name)
    # Fails where somebody else has made it: the name is not to be guessed.
    folder.mkdir(mode=0o700)
    try:
        (folder / "call").write_bytes(call)
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Call the function and leave its value, or its traceback, for the launcher."""
    import pickle

    if CALL_FOLDER in os.environ:
        call = (_folder(os.environ[CALL_FOLDER]) / "call").read_bytes()
    else:
        call = _read_all(int(os.environ[CALL_FD]))
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

    if CALL_FOLDER in os.environ:
        name = f"answer-{os.environ['FARANDOLE_RANK']}"
        file = (_folder(os.environ[CALL_FOLDER]) / name).open("wb")
    else:
        file = os.fdopen(int(os.environ[RESULT_FD]), "wb")
    with file:
        file.write(pickle.dumps(answer))


def _folder(name: str) -> Path:
    import tempfile
    from pathlib import Path

    return Path(tempfile.gettempdir(), f"farandole-call-{name}")


if __name__ == "__main__":
    main()

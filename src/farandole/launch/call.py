"""What a worker of `farandole.run(fn)` runs: the function comes and its value goes by inheritance.

Both travel in anonymous files that the launcher made and handed down: they have no name, and no
other user or process can reach them.
"""

from __future__ import annotations

import os
import sys

CALL_FD = "FARANDOLE_CALL_FD"
RESULT_FD = "FARANDOLE_RESULT_FD"


def main() -> None:
    """Call the function and leave its value, or its traceback, for the launcher."""
    import pickle

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

    with os.fdopen(int(os.environ[RESULT_FD]), "wb") as file:
        file.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()

"""Ranks that run a script in forks of a process that has imported torch once.

Importing torch is most of what a launch of a small script costs. A rank is what torchrun would have
started: a process of its own, with torchrun's variables, and the recorder let in.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.conftest import clean_environ

_START_S = 120.0


class Forks:
    """Starts the process that ranks are forked from; one serves all tests of a session."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            # More than one thread could not be forked.
            env=clean_environ(PYTHONPATH=root, OMP_NUM_THREADS="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        np: int,
        folder: Path,
        timeout_s: float,
    ) -> tuple[int, str]:
        """Run a script on so many ranks.

        Args:
            argv: the script's path and arguments.
            env: the environment of each rank, to which torchrun's variables are added.
            np: how many ranks.
            folder: for what they say.
            timeout_s: after which all are ended.

        Returns:
            0, or the code of the first that failed; and what they said, one rank after the other.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        places: list[dict[str, str]] = [{}]
        if np > 1:
            sizes = {"WORLD_SIZE": str(np), "LOCAL_WORLD_SIZE": str(np)}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(np)]
            places = [rank | sizes | meeting for rank in ranks]
        outputs = [folder / f"output-{rank}" for rank in range(np)]
        orders = [
            {"argv": list(argv), "env": {**env, **place}, "output": str(output)}
            for place, output in zip(places, outputs, strict=True)
        ]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"ranks": orders, "timeout_s": timeout_s}) + "\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], _START_S + timeout_s)
        assert ready, f"{argv[0]} has not ended"
        code = int(stdout.readline())
        return code, "".join(output.read_text() for output in outputs if output.exists())

    def close(self) -> None:
        """End the process, and every rank that came from it."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()


def main() -> None:
    """Import, then fork ranks until nobody is left to ask for any."""
    import farandole.torch  # noqa: F401

    gc.freeze()
    for text in sys.stdin:
        order = json.loads(text)
        left = {_fork(rank) for rank in order["ranks"]}
        signal.setitimer(signal.ITIMER_REAL, order["timeout_s"])
        first = 0
        signal.signal(signal.SIGALRM, lambda *_, left=left: _end(left))
        while left:
            pid, status = os.wait()
            left.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code:
                first = first or code
                _end(left)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(first, flush=True)


def _end(pids: set[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if not pid:
        _become(order)
    return pid


def _become(order: dict[str, Any]) -> NoReturn:
    """Run the script as Python would, and end as it does."""
    os.environ.clear()
    os.environ.update(order["env"])
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv[:] = order["argv"]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    code = 0
    try:
        if os.environ.get("FARANDOLE_RECORD_DIR"):
            from farandole.recorder import install

            install()
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

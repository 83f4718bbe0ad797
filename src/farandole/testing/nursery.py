"""A process that has imported everything once, and forks ranks from there in milliseconds.

Forking a test process itself would copy its threads' locks; starting Python anew costs seconds per
rank. The nursery has one thread, and what it forks begins clean.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from farandole.errors import StartError

_START_TIMEOUT_S = 120.0
_MESSAGE_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_COMMAND = "from farandole.testing.nursery import main; main()"
# A launcher's variables around the nursery are not true for its ranks.
_LAUNCHERS = ("FARANDOLE_", "HOROVOD_", "OMPI_", "PMI", "SLURM_", "MV2_", "TORCHELASTIC_")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Nursery:
    """Starts ranks for fake worlds (see testing.worlds); one can serve many of them.

    Example:
        >>> with Nursery() as nursery:  # doctest: +SKIP
        ...     with FakeWorld(2, nursery=nursery) as two, FakeWorld(3, nursery=nursery) as three:
        ...         ...
    """

    def __init__(
        self,
        preload: Sequence[str] = ("farandole.torch",),
        *,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start.

        Args:
            preload: modules to import before any rank is forked.
            variables: of the environment, besides this process's.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
        # More than one thread in the nursery could not be forked.
        environ |= dict.fromkeys(_THREADS, "1") | dict(variables or {})
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=environ,
                stdin=subprocess.DEVNULL,
                # Ctrl-C is for the process that made the ranks; these end with it.
                start_new_session=True,
            )
        self._ask(
            {"path": [entry or str(Path.cwd()) for entry in sys.path], "preload": list(preload)}
        )

    def fork(self, ends: Sequence[int], orders: dict[str, Any]) -> list[int]:
        """Fork a rank for each descriptor, in rank order; return their process ids."""
        answer = self._ask(orders, ends)
        return [int(pid) for pid in answer["pids"]]

    def close(self) -> None:
        """End the nursery, and with it every rank that came from it."""
        self._control.close()
        self._process.wait()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        self._control.settimeout(_START_TIMEOUT_S)
        socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        answer = self._control.recv(_MESSAGE_BYTES)
        if not answer:
            raise StartError(f"The nursery ended with code {self._process.wait()}; see its output.")
        return dict(json.loads(answer))


def main() -> None:
    """Import, then fork ranks until nobody is left to ask for any."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    # The kernel buries ranks that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    first = json.loads(control.recv(_MESSAGE_BYTES))
    sys.path[:] = first["path"]
    for name in first["preload"]:
        importlib.import_module(name)
    # What is there now need not be looked at again by every rank.
    gc.freeze()
    control.send(b"{}")
    while True:
        message, fds, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 253)
        if not message:
            return
        orders = json.loads(message)
        pids = []
        for rank in range(len(fds)):
            pid = os.fork()
            if pid == 0:
                _become(rank, fds, control, orders)
            pids.append(pid)
        for fd in fds:
            os.close(fd)
        control.send(json.dumps({"pids": pids}).encode())


def _become(rank: int, fds: Sequence[int], control: socket.socket, orders: dict[str, Any]) -> None:
    """Live as a rank; does not return."""
    code = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        for other in fds:
            if other != fds[rank]:
                os.close(other)
        from farandole.testing.worlds import serve

        serve(rank, fds[rank], orders)
        code = 0
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit(): there is a stack of the nursery's below.
        os._exit(code)

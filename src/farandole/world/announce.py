"""Meeting without a launcher of ours on one host: rank 0 makes a board and announces its path.

mpirun, srun and horovodrun give ranks, but no place to meet. What their workers share is the
process that started them; it names the announcement, a small file in a private folder.

A job that is killed leaves its notice behind. The process number in the board's path may by then be
another process's, also that of a board: the notice holds the board's nonce, too, and is believed
only if the board at its path has the same.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.errors import StartError, UsageError
from farandole.format import plural
from farandole.world.board import Board
from farandole.world.rendezvous import BoardRendezvous, wait_until

if TYPE_CHECKING:
    from farandole.world.world import World

_RANK_VARIABLE = {
    "openmpi": ("OMPI_COMM_WORLD_RANK",),
    "mpich": ("PMI_RANK", "MV2_COMM_WORLD_RANK"),
    "slurm": ("SLURM_PROCID",),
    "horovodrun": ("HOROVOD_RANK",),
}


def connect_announced(world: World, *, folder: Path | None = None) -> BoardRendezvous:
    """Meet the other workers of this host at a board that rank 0 makes.

    Raises:
        UsageError: The job has workers on other hosts, which a board cannot reach.
        StartError: Rank 0 announced nothing in time.
    """
    if not world.one_host:
        raise UsageError(
            f"This job has {plural(world.size, 'worker')}, {world.local_size} of them on "
            "this host, but "
            f"workers that {world.source} starts can meet on one host only. Start them with "
            "`farandole run -H`, mpirun, srun or torchrun, which work across hosts."
        )
    folder = private_folder() if folder is None else folder
    notice = folder / f"{world.source}-{launch_key(world.source)}-{_safe(world.job_id)}"
    deadline = time.monotonic() + world.start_timeout_s
    if world.rank == 0:
        board = _announce(notice, world.size)
    else:
        board = _find(notice, world.size, deadline)
    board.note_pid(world.rank, os.getpid())
    meeting = BoardRendezvous(board, world.rank, timeout_s=world.start_timeout_s)
    try:
        meeting.exchange(b"")
    finally:
        if world.rank == 0:
            notice.unlink(missing_ok=True)
    # Nobody goes on before the notice is gone, or a second init() could find the old one.
    meeting.exchange(b"")
    return meeting


def private_folder() -> Path:
    """Make the folder for notices, which nobody else may read or have prepared."""
    folder = Path(tempfile.gettempdir()) / f"farandole-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.getuid()
        or stat.S_IMODE(status.st_mode) & 0o077
    ):
        raise StartError(
            f"{folder} must be a folder of yours that nobody else can enter, and is not. "
            "Remove it, or set TMPDIR to a folder of your own."
        )
    return folder


def launch_key(source: str) -> str:
    """Name the launcher's process: the nearest ancestor that does not carry a rank itself.

    A wrapper script between launcher and worker inherits the rank, the launcher has none. The
    start time tells a process from an earlier one with the same number.
    """
    pid = os.getppid()
    while pid > 1 and _carries_rank(pid, source):
        pid = _parent(pid) or 1
    return f"{pid}-{_stat_field(pid, 19) or 0}"


def _announce(notice: Path, size: int) -> Board:
    board = Board.create(size)
    fresh = notice.with_name(f"{notice.name}.{os.getpid()}")
    try:
        fresh.write_text(f"{board.nonce} {board.path}")
        fresh.replace(notice)
    except OSError as error:
        board.close()
        raise StartError(f"{notice} cannot be written: {error.strerror}.") from error
    return board


def _find(notice: Path, size: int, deadline: float) -> Board:
    found: list[Board] = []

    def look() -> bool:
        try:
            nonce, _, path = notice.read_text().partition(" ")
            board = Board.open(path)
        except (FileNotFoundError, StartError):
            return False
        if (str(board.nonce), board.size) != (nonce, size):
            board.close()  # of another job, whose process has the number of the one that announced
            return False
        found.append(board)
        return True

    if not wait_until(look, deadline):
        raise StartError(
            "rank 0 has not called hvd.init() in time. Call it on every rank, or give slow ranks "
            "more time: FARANDOLE_START_TIMEOUT=SECONDS."
        )
    return found[0]


def _carries_rank(pid: int, source: str) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # a daemon of the system (slurmstepd runs as root): the launcher
    names = tuple(f"{name}=".encode() for name in _RANK_VARIABLE[source])
    return any(variable.startswith(names) for variable in variables)


def _parent(pid: int) -> int | None:
    return _stat_field(pid, 1)


def _stat_field(pid: int, index: int) -> int | None:
    """Read a field of /proc/<pid>/stat, counted after the name, which may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[index])


def _safe(text: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in text)[:64]

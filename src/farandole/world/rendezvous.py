"""Meeting the other workers: give my payload, get everybody's, in rank order."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from farandole.errors import StartError, UsageError
from farandole.format import plural
from farandole.world.board import POST_BYTES, Board

if TYPE_CHECKING:
    from farandole.world.environment import World
    from farandole.world.generations import GenerationBoard


# The first looks come fast, because peers that are in step answer within microseconds; the later
# ones cost nothing while a peer still imports torch.
_FIRST_SLEEP_S = 20e-6
_LONGEST_SLEEP_S = 2e-3
_MORE, _LAST = b"+", b"."


class Rendezvous(Protocol):
    """A place where all ranks of a job exchange small payloads, round by round."""

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Give this rank's payload, and get everybody's in rank order.

        Every call is the next round, and every rank calls equally often: a round is a barrier.

        Args:
            payload: Any bytes, empty ones too.
            timeout_s: How long to wait for the others; the job's start time-out when None.

        Raises:
            StartError: Ranks are missing; the message names them and says what they do.
        """


def connect(world: World) -> Rendezvous:
    """Find the meeting place that this worker's launcher offers."""
    if world.generation:
        from farandole.world.generations import GenerationBoard, membership

        member = membership()
        assert member is not None
        assert member.assignment is not None
        return BoardRendezvous(
            GenerationBoard(member.board, member.assignment),
            world.rank,
            timeout_s=world.start_timeout_s,
            rank_hosts=world.rank_hosts,
        )
    if world.board is not None:
        board = Board.open(world.board)
        if board.size != world.size:
            board.close()
            raise StartError(
                f"FARANDOLE_SIZE={world.size}, but the launcher's board is for {board.size} "
                "workers. Let `farandole run` set FARANDOLE_SIZE and FARANDOLE_BOARD."
            )
        return BoardRendezvous(
            board, world.rank, timeout_s=world.start_timeout_s, rank_hosts=world.rank_hosts
        )
    if world.size == 1:
        return SoloRendezvous()
    if world.source == "farandole":
        raise UsageError(
            f"FARANDOLE_RANK={world.rank} and FARANDOLE_SIZE={world.size} are set, but "
            "FARANDOLE_BOARD is not. Start the workers with `farandole run`, which sets all three."
        )
    if world.source == "torchrun":
        from farandole.world.store import connect_store

        return connect_store(world)
    if world.source == "slurm" and not world.one_host:
        from farandole.world.tcp import connect_tcp

        return connect_tcp(world, os.environ)
    if world.source in ("openmpi", "mpich") and not world.one_host:
        from farandole.world.mpi import connect_mpi

        return connect_mpi(world)

    return connect_announced(world)


class SoloRendezvous:
    """The meeting place of one worker, who is always there."""

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Return the one payload there is."""
        return [payload]


class BoardRendezvous:
    """Meeting at a bulletin board in shared memory."""

    def __init__(
        self,
        board: Board | GenerationBoard,
        rank: int,
        *,
        timeout_s: float,
        rank_hosts: Sequence[str] = (),
    ) -> None:
        """Come to a board.

        Args:
            board: The launcher's, which stays open; in an elastic run, as a generation sees it.
            rank: My rank.
            timeout_s: How long an exchange waits for the others.
            rank_hosts: The host of each rank, where there are several.
        """
        self.board = board
        self._rank_hosts = rank_hosts
        self._rank = rank
        self._timeout_s = timeout_s
        # Who meets at this board a second time, after shutdown() and init(), goes on counting.
        self._round = board.rounds(rank)

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Post the payload and wait for everybody's; long ones take more than one round."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        parts: list[bytes] = [b""] * self.board.size
        rest = payload
        while True:
            chunk, rest = rest[: POST_BYTES - 1], rest[POST_BYTES - 1 :]
            answers = self._one_round((_MORE if rest else _LAST) + chunk, deadline)
            parts = [part + answer[1:] for part, answer in zip(parts, answers, strict=True)]
            # All ranks read the same answers, so that all agree on whether a round follows.
            if all(answer[:1] == _LAST for answer in answers):
                return parts

    def _one_round(self, payload: bytes, deadline: float) -> list[bytes]:
        number = self._round
        self.board.post(self._rank, number, payload)
        answers: dict[int, bytes] = {}

        def all_there() -> bool:
            for rank in range(self.board.size):
                if rank not in answers:
                    answer = self.board.posted(rank, number)
                    if answer is None:
                        self._check_end(rank, number)
                        return False
                    answers[rank] = answer
            return True

        if not wait_until(all_there, deadline):
            missing = [r for r in range(self.board.size) if self.board.posted(r, number) is None]
            if missing:
                raise StartError(self._absence(missing, number), culprit=missing[0])
            all_there()
        self._round = number + 1
        return [answers[rank] for rank in range(self.board.size)]

    def _check_end(self, rank: int, number: int) -> None:
        """Raise when a rank that is waited for has ended, since it will never come."""
        self.board.check()
        code = self.board.exit_code(rank)
        # It may have posted between the look at its post and the look at its end.
        if code is None or self.board.posted(rank, number) is not None:
            return
        how = f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
        before = (
            "without calling hvd.init()"
            if number == 0
            else "while the others waited for it (hvd.init() or hvd.shutdown())"
        )
        failure = self.board.failure(rank)
        reason = f": {failure.text}" if failure else ""
        raise StartError(f"{self._named(rank)} {how} {before}{reason}.", culprit=rank)

    def _absence(self, missing: list[int], number: int) -> str:
        what = (
            "has not called hvd.init()"
            if number == 0
            else "has not come to the exchange that the others wait in"
        )
        lines = []
        for rank in missing[:8]:
            pid = self.board.pid(rank)
            running = f" (pid {pid}) is running but" if pid else ""
            lines.append(f"{self._named(rank)}{running} {what}")
        if len(missing) > 8:
            lines.append(f"and {len(missing) - 8} more ranks")
        return (
            "; ".join(lines) + ". Call hvd.init() on every rank, or give slow ranks more time: "
            "--start-timeout SECONDS (FARANDOLE_START_TIMEOUT)."
        )

    def _named(self, rank: int) -> str:
        return (
            f"rank {rank} on host {self._rank_hosts[rank]}" if self._rank_hosts else f"rank {rank}"
        )


def wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Look again and again, ever less often, until it is true (True) or too late (False)."""
    pause = _FIRST_SLEEP_S
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_SLEEP_S)
    return True


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

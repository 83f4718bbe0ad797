"""What the head and its agents say to each other: one frozen value per message, as JSON.

They travel over world.channel, so that whoever speaks knows the job's secret. What arrives is
checked field by field all the same, and nothing in it is ever run but the share of a job, which
only the head sends.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import types
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from farandole.errors import DataError, FarandoleError
from farandole.launch import control
from farandole.world.channel import Connection

MOST_BYTES = 1 << 20
"""The longest message; a chunk of output fits several times."""


class MessageError(FarandoleError):
    """Bytes from one who knows the secret that are not a message: another version, or a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """An agent says who it is."""

    host: int
    """The number of its host."""
    name: str
    """What the host calls itself."""
    address: str
    """The host's address on the way to the head."""
    master_port: int
    """The port that it holds for torch's store; 0 where rank 0 is elsewhere."""
    python: str
    torch: str
    """Version; '' when it is not installed."""
    farandole: str
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The head tells an agent what to run."""

    job_id: str
    argv: list[str]
    cwd: str
    variables: dict[str, str]
    hosts: list[str]
    """The names of all hosts."""
    counts: list[int]
    """How many ranks each of them has."""
    master_addr: str
    master_port: int
    threads: int
    override_threads: bool
    transport: str
    start_timeout_s: float
    look_every_s: float
    """How often an agent looks at its workers and tells."""
    horovod_alias: bool
    clean_stop: bool
    """Whether a scheduler's warning asks workers to stop by themselves; else it ends them."""
    timeline: bool
    restart: int
    """How often all workers have been started again."""
    max_restarts: int
    elastic: bool
    """Whether workers are started one by one, when the head says so; there are no hosts then."""
    record_dir: str
    """Where workers record on the head's host; '' when they do not."""
    record_mark: str
    """The name of a file there: a host that sees it sees the same folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An agent has started its workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An agent cannot do its share."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A worker wrote something."""

    rank: int
    stream: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A rank posted on its board; passed on to the boards of the other hosts."""

    rank: int
    round: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A worker ended; passed on likewise. Clocks of hosts differ: times are how long ago."""

    rank: int
    code: int
    ago_ns: int
    step: int
    failure: str
    """What it wrote about its end; '' when it wrote nothing."""
    failure_ago_ns: int
    secondary: bool
    culprit: int
    """The rank that it waited for in vain; -1 when none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An agent's look at its workers, now and then."""

    steps: dict[str, int]
    """By rank, as text: JSON knows no other keys."""
    stopped: list[int]
    exiting: list[int]
    """Ranks whose script has ended, and which run their exit handlers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSteps:
    """Rank 0 said where all are to stop; passed on likewise."""

    last_step: int
    last_recorded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStop:
    """The head asks all workers to stop by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The head says how much it has taken in of what an agent sent (launch.outbox)."""

    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """The head has a signal sent to a worker."""

    rank: int
    signum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """The head has a worker of an elastic run started."""

    worker: int
    generation: int
    """The one that it will be in if nothing else happens."""
    assignment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormGeneration:
    """The head lets workers begin a generation."""

    generation: int
    assignment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakGeneration:
    """The head says that a generation has lost a worker."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsChange:
    """The head says that hosts have changed."""

    added: bool
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissWorker:
    """The head does not need a worker any more."""

    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A worker has left a generation, and waits for the next one."""

    worker: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HasState:
    """A worker has the state of training."""

    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """All ranks have ended: the agent ends what they left, sends records, and goes."""

    patient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a file of records, from a host that does not see the head's folder."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The last word of an agent."""

    reason: str
    """'' when it did all it was told."""


Message = (
    Hello
    | Share
    | Started
    | Refused
    | Output
    | Post
    | Ended
    | Status
    | LastSteps
    | AskStop
    | Heard
    | Signal
    | StartWorker
    | FormGeneration
    | BreakGeneration
    | HostsChange
    | DismissWorker
    | Left
    | HasState
    | Finish
    | Piece
    | Leaving
)
_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}
_HINTS: dict[str, dict[str, Any]] = {name: get_type_hints(kind) for name, kind in _KINDS.items()}


def encode(message: Message) -> bytes:
    """Write a message; bytes become text with one letter each."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    for name, value in values.items():
        if isinstance(value, bytes):
            values[name] = value.decode("latin-1")
    return json.dumps([type(message).__name__, values], ensure_ascii=False).encode(
        errors="surrogatepass"
    )


def decode(data: bytes) -> Message:
    """Read a message.

    Raises:
        MessageError: It is none.
    """
    try:
        found = json.loads(data.decode(errors="surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not JSON: {error}") from None
    if not (isinstance(found, list) and len(found) == 2 and isinstance(found[1], dict)):
        raise MessageError("neither a kind nor values")
    name, values = found
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise MessageError("an unknown kind")
    hints = _HINTS[name]
    if values.keys() != hints.keys():
        raise MessageError(f"{name} with other fields")
    return kind(**{field: _read(values[field], hints[field], name) for field in hints})


def _read(value: Any, hint: Any, name: str) -> Any:
    """Check a value against its type; turn text into bytes where these are meant."""
    if hint is bytes and isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            raise MessageError(f"{name} with letters that are no bytes") from None
    if hint is float and type(value) in (int, float):
        return float(value)
    origin = get_origin(hint)
    if origin in (list, dict) and type(value) is origin:
        *_, inner = get_args(hint)
        if isinstance(value, dict):
            return {key: _read(each, inner, name) for key, each in value.items()}
        found: list[Any] = value
        return [_read(each, inner, name) for each in found]
    # bool is an int to Python, and must not be one here.
    if not isinstance(hint, types.GenericAlias) and type(value) is hint:
        return value
    raise MessageError(f"{name} with a value of another type")


_PIECE_BYTES = 128 * 1024
# A file in the folder itself, not hidden: nothing else is written for another host.
_NAME = re.compile(r"\w[\w.-]*")


class Records:
    """Where the workers of this host record."""

    def __init__(self, folder: str, mark: str) -> None:
        """Find the head's folder, or make one.

        Args:
            folder: The head's folder; '' when nothing is recorded.
            mark: The name of a file in it.
        """
        self.folder: Path | None = None
        self._own = False
        if folder:
            self._own = not Path(folder, mark).is_file()
            self.folder = (
                Path(tempfile.mkdtemp(prefix="farandole-record-")) if self._own else Path(folder)
            )

    def pieces(self) -> Iterator[Piece]:
        """Read what has to be sent to the head; nothing when it sees the folder itself."""
        if not self._own or self.folder is None:
            return
        for path in sorted(self.folder.iterdir()):
            # What a script has put there under a name of its own stays, as its folders do.
            if not path.is_file() or not _NAME.fullmatch(path.name):
                continue
            with path.open("rb") as file:
                while data := file.read(_PIECE_BYTES):
                    yield Piece(name=path.name, data=data)

    def close(self) -> None:
        """Remove what was kept here."""
        if self._own and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def keep(folder: Path, piece: Piece) -> None:
    """Add what another host sent to a file in the head's folder.

    Raises:
        DataError: It is named as no record is.
    """
    if not _NAME.fullmatch(piece.name):
        raise DataError(f"{piece.name!r} is not the name of a record.")
    with (folder / piece.name).open("ab") as file:
        file.write(piece.data)


ROOM_BYTES = 64 * 1024
"""On the way at once, besides the last message."""
RECEIVE_BYTES = 1024 * 1024
"""What the head asks its kernel for; it gets a part of that, which is several times the room."""
TELL_BYTES = 16 * 1024
"""How much the head takes in before it says so."""


class Outbox:
    """What an agent has to say, in order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._sent_bytes = self._heard_bytes = 0
        self.backlog_bytes = 0
        """What waits here."""

    def send(self, message: control.Message) -> None:
        """Send a message when its turn has come."""
        data = control.encode(message)
        self._waiting.append(data)
        self.backlog_bytes += len(data)
        self.advance()

    def heard(self, total_bytes: int) -> None:
        """Take note of how much the head has taken in, of all that was ever sent."""
        self._heard_bytes = total_bytes
        self.advance()

    def advance(self) -> None:
        """Send what there is room for."""
        while self._waiting and self._sent_bytes - self._heard_bytes < ROOM_BYTES:
            data = self._waiting.popleft()
            self.backlog_bytes -= len(data)
            self._sent_bytes += len(data)
            self._connection.send(data)

    @property
    def empty(self) -> bool:
        """Say whether all has been handed to the kernel."""
        return not self._waiting and not self._connection.backed_up

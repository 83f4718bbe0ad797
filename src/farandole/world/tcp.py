"""Meeting over TCP where workers of several hosts have no launcher of ours: a star around rank 0.

`srun python train.py` gives every worker its rank and the names of all hosts. Rank 0 listens on the
address that leads to the others, at a port that follows from the job's number; the others call it.
Both ends prove the job's secret (world.channel) before anything is taken in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import select
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.errors import StartError, UsageError
from farandole.format import plural
from farandole.world.channel import Connection, Door, call
from farandole.world.environment import is_loopback
from farandole.world.routes import address_towards
from farandole.world.slurm import network_name

if TYPE_CHECKING:
    from farandole.world.environment import World


# Below the range from which Linux gives out ports by itself (32768 and up).
_FIRST_PORT, _NUM_PORTS = 20000, 12000
# Another job on this host may have the first: rank 0 takes the first that is free, callers try all.
_TRIES = 8
_CALL_TIMEOUT_S = 2.0
_BETWEEN_ROUNDS_S = 0.05
# Another job's rank 0 at our port refuses us too; ours is found within this time if it is there.
_REFUSED_S = 10.0
# What the others wait longer than rank 0, who knows who is missing and tells them.
_LAST_WORD_S = 2.0
_MOST_BYTES = 16 * 1024 * 1024


class TcpRendezvous:
    """Meeting at rank 0 over authenticated connections."""

    def __init__(
        self,
        *,
        size: int,
        door: Door | None = None,
        to_zero: Connection | None = None,
        hosts: Sequence[str] = (),
        advice: str = "",
        timeout_s: float,
    ) -> None:
        """Take over what has been opened.

        Args:
            size: Number of ranks.
            door: Where rank 0 listens; closed once all have come.
            to_zero: The others' connection to rank 0.
            hosts: All hosts, as far as they are known.
            advice: What to look at when a caller did not know the secret.
            timeout_s: How long an exchange waits for the others.
        """
        self._size = size
        self._door, self._to_zero = door, to_zero
        self._address = door.address if door is not None else ""
        self._hosts, self._advice = hosts, advice
        self._timeout_s = timeout_s
        self._round = 0
        self._peers: dict[int, Connection] = {}
        self._heard: set[str] = set()
        """Hosts of those who have called."""
        self._posted: dict[int, dict[int, bytes]] = {}
        """By round, what ranks have sent; rank 0's."""

    @property
    def local_address(self) -> str:
        """The address of this host that leads to the others."""
        return self._address if self._to_zero is None else self._to_zero.local_address

    def exchange(self, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Give this rank's payload to rank 0, and get everybody's from there."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        number, self._round = self._round, self._round + 1
        if self._to_zero is not None:
            self._to_zero.send(_encoded(round=number, payload=_text(payload)))
            return self._answer(self._to_zero, number, deadline + _LAST_WORD_S)
        self._posted.setdefault(number, {})[0] = payload
        while len(self._posted[number]) < self._size:
            self._serve(max(0.0, min(0.1, deadline - time.monotonic())))
            lost = [rank for rank, peer in self._peers.items() if peer.lost]
            gone = [rank for rank in lost if rank not in self._posted[number]]
            if gone:
                self._give_up(f"{self._peers[gone[0]].lost.rstrip('.')}, while others waited.")
            if time.monotonic() > deadline and len(self._posted[number]) < self._size:
                self._give_up(self._absence(number))
        found = self._posted.pop(number)
        answers = [found[rank] for rank in range(self._size)]
        self._tell(_encoded(round=number, payloads=[_text(answer) for answer in answers]))
        return answers

    def close(self) -> None:
        """Hang up."""
        for connection in (self._to_zero, *self._peers.values()):
            if connection is not None:
                connection.close()
        if self._door is not None:
            self._door.close()

    def _serve(self, patience_s: float) -> None:
        """Let in whoever calls, and take in what has been sent (rank 0)."""
        reading: list[Connection | Door] = [*_there(self._peers)]
        writing = [peer for peer in _there(self._peers) if peer.backed_up]
        if self._door is not None:
            reading += [self._door, *self._door.strangers]
        _wait(reading, writing, patience_s)
        for connection, first in self._door.accept() if self._door is not None else ():
            self._let_in(connection, _decoded(first))
        if self._door is not None and len(self._peers) == self._size - 1:
            self._door.close()
            self._door = None
        for rank, peer in self._peers.items():
            peer.flush()
            for message in peer.receive():
                content = _decoded(message)
                with_round = self._posted.setdefault(int(content["round"]), {})
                with_round[rank] = _bytes(content["payload"])

    def _let_in(self, connection: Connection, hello: Mapping[str, Any]) -> None:
        rank, size, host = int(hello["rank"]), int(hello["size"]), str(hello["host"])
        connection.peer = f"rank {rank} on {host}"
        if size != self._size or not 0 < rank < size or rank in self._peers:
            known = " twice" if rank in self._peers else ""
            self._peers[-1 - len(self._peers)] = connection
            self._give_up(
                f"{connection.peer} of {size} called rank 0 of {self._size}{known}. Start all "
                "workers by one srun."
            )
        self._peers[rank] = connection
        self._heard.add(host)

    def _answer(self, connection: Connection, number: int, deadline: float) -> list[bytes]:
        while True:
            for message in connection.receive():
                content = _decoded(message)
                if "trouble" in content:
                    raise StartError(str(content["trouble"]))
                if content["round"] == number:
                    return [_bytes(text) for text in content["payloads"]]
            if connection.lost:
                raise StartError(connection.lost)
            left = deadline - time.monotonic()
            if left <= 0:
                raise StartError(
                    f"{connection.me} has waited for the others at {connection.peer}, which does "
                    f"not answer. See what rank 0 does. {_TIME}"
                )
            writing = [connection] if connection.backed_up else []
            _wait([connection], writing, min(left, 0.1))
            connection.flush()

    def _tell(self, message: bytes) -> None:
        for peer in self._peers.values():
            peer.send(message)
        deadline = time.monotonic() + _LAST_WORD_S
        while any(peer.backed_up for peer in self._peers.values()):
            if time.monotonic() > deadline:
                return  # whoever does not read is lost in the next exchange
            writing = [peer for peer in self._peers.values() if peer.backed_up]
            _wait([], writing, 0.1)
            for peer in writing:
                peer.flush()

    def _give_up(self, why: str) -> None:
        self._tell(_encoded(trouble=why))
        raise StartError(why)

    def _absence(self, number: int) -> str:
        missing = [rank for rank in range(self._size) if rank not in self._posted[number]]
        verb = "has" if len(missing) == 1 else "have"
        names = ", ".join(f"rank {rank}" for rank in missing[:8])
        names += f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        silent = [host for host in self._hosts[1:] if host not in self._heard]
        where = f" Nothing was heard from {_listed(silent)}." if silent and not number else ""
        if self._door is not None and self._door.refused:
            where += f" A caller was turned away: {self._door.refused[0]} {self._advice}"
        what = "called hvd.init()" if not number else "come to the exchange that the others wait in"
        return f"{names} {verb} not {what} in time.{where} {_TIME}"


_TIME = (
    "Call hvd.init() on every rank, or give slow ranks more time: FARANDOLE_START_TIMEOUT=SECONDS."
)


def connect_tcp(world: World, environ: Mapping[str, str]) -> TcpRendezvous:
    """Meet the other workers of a job of several hosts, whose names the launcher tells.

    Raises:
        UsageError: The launcher does not tell the hosts.
        StartError: Somebody is missing, or does not know the secret of the job.
    """
    if not world.hosts:
        raise UsageError(
            f"This job has {plural(world.size, 'worker')} on several hosts, but "
            f"{world.source} does not say "
            "on which (SLURM_STEP_NODELIST is not set). Start the workers with srun."
        )
    secret = job_secret(environ, world.job_id)
    ports = ports_of(world.job_id)
    me = f"rank {world.rank} on {world.hostname}"
    advice = (
        f"The secret comes from {source(environ)}: it must be the same file on all hosts. Where "
        "homes are not shared, set FARANDOLE_SECRET_FILE to a file that is."
    )
    if world.rank == 0:
        meeting = TcpRendezvous(
            size=world.size,
            door=_listen(_own_address(world, environ), ports, secret, me),
            hosts=world.hosts,
            advice=advice,
            timeout_s=world.start_timeout_s,
        )
    else:
        address = environ.get("MASTER_ADDR") or network_name(world.hosts[0])
        zero = f"rank 0 on {world.hosts[0]}"
        to_zero = _call(
            address, ports, secret, me=me, zero=zero, timeout_s=world.start_timeout_s, advice=advice
        )
        to_zero.send(_encoded(rank=world.rank, size=world.size, host=world.hostname))
        meeting = TcpRendezvous(size=world.size, to_zero=to_zero, timeout_s=world.start_timeout_s)
    try:
        meeting.exchange(b"")
    except BaseException:
        meeting.close()
        raise
    return meeting


def ports_of(job: str) -> tuple[int, ...]:
    """Return the ports at which rank 0 of a job may listen, in the order in which it tries them."""
    digests = (hashlib.blake2b(f"{job}/{turn}".encode(), digest_size=8) for turn in range(_TRIES))
    numbers = (int.from_bytes(digest.digest(), "little") for digest in digests)
    return tuple(_FIRST_PORT + number % _NUM_PORTS for number in numbers)


def _own_address(world: World, environ: Mapping[str, str]) -> str:
    """Return the address of this host that leads to the others."""
    if environ.get("FARANDOLE_ADDRESS"):
        return environ["FARANDOLE_ADDRESS"]
    if environ.get("MASTER_ADDR"):
        address = address_towards(environ["MASTER_ADDR"])
        # Many hosts know their own name as loopback, where nobody else reaches them.
        if not is_loopback(address):
            return address
    others = [host for host in world.hosts if host != world.hosts[0]]
    return address_towards(network_name(others[0]))


def _listen(address: str, ports: Sequence[int], secret: bytes, me: str) -> Door:
    for port in ports:
        try:
            return Door(address, secret, port=port, me=me, most_bytes=_MOST_BYTES)
        except OSError as error:
            reason = error
    raise StartError(
        f"{me} can listen at none of the ports {_listed([str(port) for port in ports])} of "
        f"{address} ({reason.strerror})."
    ) from reason


def _call(
    address: str,
    ports: Sequence[int],
    secret: bytes,
    *,
    me: str,
    zero: str,
    timeout_s: float,
    advice: str,
) -> Connection:
    """Call rank 0 until it answers; it may start later than this rank."""
    begin = time.monotonic()
    refused_since: float | None = None
    while True:
        last: StartError | None = None
        for port in ports:
            try:
                return call(
                    address,
                    port,
                    secret,
                    timeout_s=_CALL_TIMEOUT_S,
                    me=me,
                    peer=zero,
                    most_bytes=_MOST_BYTES,
                )
            except StartError as error:
                if not isinstance(error.__cause__, OSError):
                    # Somebody is there who is not rank 0 of this job, or has another key.
                    last = error
        now = time.monotonic()
        refused_since = None if last is None else refused_since or now
        if last is not None and refused_since is not None and now - refused_since > _REFUSED_S:
            raise StartError(f"{last} {advice}") from last
        if now - begin > timeout_s:
            raise StartError(
                f"{me} cannot reach {zero} at {address}, ports {_listed([str(p) for p in ports])}: "
                "rank 0 has not called hvd.init(), or a firewall keeps the hosts apart. " + _TIME
            )
        time.sleep(_BETWEEN_ROUNDS_S)


def _wait(
    reading: Sequence[Connection | Door], writing: Sequence[Connection], timeout_s: float
) -> None:
    """Wait until one of them is ready; select() takes no descriptors from 1024 on."""
    poll = select.poll()
    for each in reading:
        poll.register(each, select.POLLIN)
    for connection in writing:
        both = select.POLLIN if connection in reading else 0
        poll.register(connection, select.POLLOUT | both)
    poll.poll(timeout_s * 1000)


def _there(peers: Mapping[int, Connection]) -> list[Connection]:
    return [peer for peer in peers.values() if not peer.lost]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _encoded(**content: object) -> bytes:
    return json.dumps(content).encode()


def _decoded(message: bytes) -> dict[str, Any]:
    content = json.loads(message)
    if not isinstance(content, dict):
        raise StartError("A worker of another version of Farandole called. Use one on all hosts.")
    return content


def _text(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


VARIABLE = "FARANDOLE_SECRET_FILE"
_KEY_BYTES = 32
_LEAST_BYTES = 16
# A key fits easily; what is longer is another file.
_LARGEST_KEY_BYTES = 64 * 1024


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
        content = os.read(descriptor, _LARGEST_KEY_BYTES)
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
            content = file.read(_LARGEST_KEY_BYTES)
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

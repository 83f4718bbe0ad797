"""Authenticated messages over TCP: both ends prove the same secret before anything is taken in.

Each end opens with a nonce of its own. The key of the connection is a keyed hash of both, so that
what was recorded on one connection is worth nothing on another. Then come frames: length, digest,
payload. The digest covers the direction and the frame's number: a frame cannot be forged,
replayed, reordered or sent back. The first frame is empty and is the proof; from one who has not
given it, nothing else is read. Messages are signed, not encrypted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import random
import secrets
import socket
import struct
import time
from collections import Counter, deque
from dataclasses import dataclass

from farandole.errors import StartError
from farandole.world.descriptors import out_of_descriptors

MOST_BYTES = 64 * 1024 * 1024
"""A longer frame is refused unread, where the user of a connection sets no lower limit."""
PROOF_TIMEOUT_S = 5.0
"""What a caller gets to prove the secret."""

_OPENING = b"farandole 1\n"
_NONCE_BYTES = 32
_OPENING_BYTES = len(_OPENING) + _NONCE_BYTES
_HEAD = struct.Struct("<I16s")
_NUMBER = struct.Struct("<BQ")
_CALLER, _LISTENER = 0, 1
_ENDED = "it has ended"
_SILENCE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
# Linux's struct tcp_info up to the milliseconds since data and since an acknowledgement came.
_LAST_RECEIVED = struct.Struct("=II")
_TCP_INFO_BYTES, _LAST_AT = 60, 52
# Bytes taken from the kernel before frames are looked at: a fast peer does not fill the memory.
_READ_BYTES, _READS = 1 << 18, 16
# An opening and a proof, which is a frame without a message: all that a stranger may say.
_STRANGERS_BYTES = _OPENING_BYTES + _HEAD.size
# Callers that may be on their way to a proof at once, and those of them from one address.
_MOST_STRANGERS, _MOST_FROM_ONE = 256, 128
# Who has begun to speak is left this time for the proof, whoever else calls.
_SPEAKING_S = 1.0
# Calls that are taken before those who are here are heard again.
_CALLS_AT_ONCE = 256
_BACKLOG = 4096
_CALL_AGAIN_S = 0.1


class Connection:
    """One end of an authenticated stream of messages; never blocks."""

    def __init__(
        self,
        stream: socket.socket,
        secret: bytes,
        *,
        caller: bool,
        me: str = "this process",
        peer: str = "its peer",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Open the conversation.

        Args:
            stream: A connected TCP socket; it is closed with the connection.
            secret: What both ends know, of any length but 0.
            caller: Whether this end made the call; the other one took it.
            me: Who this end is, for messages.
            peer: Who the other end is, for messages.
            most_bytes: The longest message that is taken.
        """
        assert secret, "a connection needs a secret"
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.me, self.peer = me, peer
        self.lost = ""
        """What was lost and why, in one sentence; '' while the other end is there."""
        self.why = ""
        """Why nothing more comes from the other end, such as `it has ended`."""
        self.proven = False
        """Whether the other end has proved that it knows the secret."""
        self._stream = stream
        self._secret = hashlib.blake2b(secret, digest_size=64).digest()
        self._role = _CALLER if caller else _LISTENER
        self._most_bytes = most_bytes
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._key = b""
        self._sent = self._received = 0
        self._silence_s = 0
        self._gone = ""
        """Why nothing can be sent any more."""
        self._incoming = bytearray()
        self._arrived: deque[bytes] = deque()
        self._outgoing = bytearray(_OPENING + self._nonce)
        self._early: deque[bytes] = deque([b""])
        """What waits for the key; the proof is the first."""
        self.flush()

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._stream.fileno()

    @property
    def opened(self) -> bool:
        """Say whether the other end has begun to speak, and this protocol."""
        return bool(self._key)

    @property
    def backed_up(self) -> bool:
        """Say whether something waits for the kernel to take it."""
        return bool(self._outgoing) and not self.lost

    @property
    def local_address(self) -> str:
        """The address of this end."""
        return str(self._stream.getsockname()[0])

    def notice_loss(self, within_s: int) -> None:
        """Have the kernels of both ends ask for each other, so that a silent end is a lost one.

        They answer for a process that is stopped or has no time; a host that is down or cut off
        does not answer. The end of a process is noticed at once, without this. Use it where an end
        that reads nothing for a while is not sent more than its kernel takes in: a kernel that is
        full counts as silent, too.
        """
        stream = self._stream
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, within_s)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # The same for what was sent and is not acknowledged.
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, within_s * 1000)
        self._silence_s = within_s

    def check_silence(self) -> bool:
        """Say whether the other end is lost, also by a silent kernel; ask once a second or so.

        The kernel's own time-outs begin anew with what is sent meanwhile, and may take twice as
        long.
        """
        if self._silence_s and not self.lost and hasattr(socket, "TCP_INFO"):
            info = self._stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            since_ms = _LAST_RECEIVED.unpack_from(info.ljust(_TCP_INFO_BYTES, b"\0"), _LAST_AT)
            if min(since_ms) > self._silence_s * 1000:
                self._lose(f"it has not answered for {self._silence_s} s")
        return bool(self.lost)

    def send(self, message: bytes) -> None:
        """Queue a message and push what the kernel takes; one who is lost gets nothing."""
        if self.lost:
            return
        if self._key:
            self._frame(message)
        else:
            self._early.append(message)
        self.flush()

    def flush(self) -> None:
        """Push what the kernel takes."""
        while self._outgoing and not self.lost and not self._gone:
            try:
                del self._outgoing[: self._stream.send(self._outgoing)]
            except BlockingIOError:
                return
            except OSError as error:
                # What has arrived before the end is still to be read; receiving finds the end too.
                self._gone = self._why(error)
                self._outgoing.clear()

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived whole; none after one that is not genuine."""
        self.advance()
        messages = list(self._arrived)
        self._arrived.clear()
        return messages

    def receive_one(self) -> bytes | None:
        """Return the next message; None when there is none yet."""
        self.advance()
        return self._arrived.popleft() if self._arrived else None

    def advance(self) -> None:
        """Push and take in what the kernel can do now; messages wait until they are received."""
        self.flush()
        read_end = self._read()
        ended = self._gone or read_end
        if self._key or self._open():
            self._take_frames()
        if ended:
            self._lose(ended)

    def close(self) -> None:
        """Close the socket."""
        self._stream.close()

    def _read(self) -> str:
        """Take in bytes; return why none will follow, or ''."""
        for _ in range(_READS if self.proven else 1):
            if self.lost:
                return ""
            try:
                data = self._stream.recv(_READ_BYTES if self.proven else _STRANGERS_BYTES)
            except BlockingIOError:
                return ""
            except OSError as error:
                return self._why(error)
            if not data:
                return _ENDED
            self._incoming += data
        return ""

    def _why(self, error: OSError) -> str:
        if error.errno in _SILENCE and self._silence_s:
            return f"it has not answered for {self._silence_s} s"
        return _ENDED

    def _open(self) -> bool:
        """Read the other end's opening; say whether there is a key now."""
        head = bytes(self._incoming[: len(_OPENING)])
        if not _OPENING.startswith(head):
            self._refuse("it does not speak this version of Farandole's protocol")
            return False
        if len(self._incoming) < _OPENING_BYTES:
            return False
        nonce = bytes(self._incoming[len(_OPENING) : _OPENING_BYTES])
        del self._incoming[:_OPENING_BYTES]
        both = self._nonce + nonce if self._role == _CALLER else nonce + self._nonce
        self._key = hashlib.blake2b(both, key=self._secret, digest_size=32).digest()
        while self._early:
            self._frame(self._early.popleft())
        self.flush()
        return True

    def _take_frames(self) -> None:
        while len(self._incoming) >= _HEAD.size:
            length, digest = _HEAD.unpack_from(self._incoming)
            most = self._most_bytes if self.proven else 0
            if length > most:
                self._refuse(f"a message of {length} bytes was refused (at most {most})")
                return
            end = _HEAD.size + length
            if len(self._incoming) < end:
                return
            message = bytes(self._incoming[_HEAD.size : end])
            del self._incoming[:end]
            genuine = self._digest(1 - self._role, self._received, message)
            if not hmac.compare_digest(digest, genuine):
                self._refuse(
                    "a message with a wrong digest was refused"
                    if self.proven
                    else "it does not know the secret of this job"
                )
                return
            self._received += 1
            if self.proven:
                self._arrived.append(message)
            self.proven = True

    def _frame(self, message: bytes) -> None:
        digest = self._digest(self._role, self._sent, message)
        self._sent += 1
        if not self._gone:
            self._outgoing += _HEAD.pack(len(message), digest) + message

    def _digest(self, role: int, number: int, message: bytes) -> bytes:
        head = _NUMBER.pack(role, number)
        return hashlib.blake2b(head + message, key=self._key, digest_size=16).digest()

    def _refuse(self, why: str) -> None:
        self._lose(why)
        self._incoming.clear()
        # Whoever sends what is not genuine gets nothing more from here.
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RD)

    def _lose(self, why: str) -> None:
        if not self.lost:
            self.why = why
            self.lost = f"{self.me} lost its connection to {self.peer}: {why}."
        self._outgoing.clear()


@dataclass(frozen=True, slots=True)
class _Stranger:
    """One who has called and not said a first message yet."""

    since_s: float
    address: str
    connection: Connection


class Door:
    """A listening socket that lets in only those who know the secret; never blocks."""

    def __init__(
        self,
        address: str,
        secret: bytes,
        *,
        port: int = 0,
        me: str = "this process",
        most_bytes: int = MOST_BYTES,
        receive_bytes: int | None = None,
    ) -> None:
        """Listen on one address only.

        Args:
            address: An address of this host; never all of them.
            secret: What callers must prove.
            port: The port; any free one when 0.
            me: Who listens, for messages.
            most_bytes: The longest message that connections take.
            receive_bytes: The room to ask the kernel for, where its own choice is not enough.

        Raises:
            OSError: The address or port cannot be had.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        if receive_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._secret = secret
        self._me = me
        self._most_bytes = most_bytes
        self._strangers: list[_Stranger] = []
        self.refused: list[str] = []
        """Why callers were turned away, the first hundred of them."""
        self.address: str = self._listener.getsockname()[0]
        self.port: int = self._listener.getsockname()[1]

    def fileno(self) -> int:
        """Return the listening descriptor, for selectors."""
        return self._listener.fileno()

    @property
    def strangers(self) -> list[Connection]:
        """Those who have called and not said their first message yet, for selectors."""
        return [stranger.connection for stranger in self._strangers]

    def accept(self) -> list[tuple[Connection, bytes]]:
        """Return those who have proved the secret, each with its first message.

        Raises:
            StartError: This process cannot open any more files.
        """
        # Who is here is heard before anybody has to make room for others.
        guests = self._hear()
        self._take_calls()
        return guests + self._hear()

    def close(self) -> None:
        """Stop listening, and hang up on strangers."""
        self._listener.close()
        for stranger in self._strangers:
            stranger.connection.close()
        self._strangers.clear()

    def _hear(self) -> list[tuple[Connection, bytes]]:
        guests: list[tuple[Connection, bytes]] = []
        waiting, self._strangers = self._strangers, []
        now_s = time.monotonic()
        for stranger in waiting:
            connection = stranger.connection
            first = connection.receive_one()
            if first is not None:
                guests.append((connection, first))
            elif connection.lost:
                self._turn_away(connection, connection.lost)
            elif not connection.proven and now_s - stranger.since_s > PROOF_TIMEOUT_S:
                self._turn_away(
                    connection,
                    f"{connection.peer} called and proved nothing for {PROOF_TIMEOUT_S:g} s.",
                )
            else:
                self._strangers.append(stranger)
        return guests

    def _take_calls(self) -> None:
        for _ in range(_CALLS_AT_ONCE):
            try:
                stream, address = self._listener.accept()
            except OSError as error:
                lack = out_of_descriptors(error)
                if not lack:
                    return  # nobody calls, or one who has hung up already
                if not self._make_room(""):
                    raise StartError(f"{self._me} is {lack}") from error
                continue
            connection = Connection(
                stream,
                self._secret,
                caller=False,
                me=self._me,
                peer=f"the caller from {address[0]}",
                most_bytes=self._most_bytes,
            )
            # Most who mean it have begun to speak when they are taken.
            connection.advance()
            counts = Counter(s.address for s in self._strangers if not s.connection.proven)
            if counts[address[0]] >= _MOST_FROM_ONE:
                room = self._make_room(address[0])
            elif counts.total() >= _MOST_STRANGERS:
                room = self._make_room(counts.most_common(1)[0][0])
            else:
                room = True
            if room and not connection.lost:
                self._strangers.append(_Stranger(time.monotonic(), address[0], connection))
            else:
                self._turn_away(
                    connection, connection.lost or f"{connection.peer} came while many others did."
                )

    def _make_room(self, address: str) -> bool:
        """Turn away a caller from an address (from any when ''); say whether there was one.

        The oldest that has said nothing, or that has long had time for a proof.
        """
        latest_s = time.monotonic() - _SPEAKING_S
        for silent in (True, False):
            for stranger in list(self._strangers):
                connection = stranger.connection
                if address not in ("", stranger.address) or connection.proven:
                    continue
                if silent == connection.opened or not (silent or stranger.since_s < latest_s):
                    continue
                connection.advance()
                if connection.proven or silent == connection.opened:
                    continue  # it has just gone on
                self._strangers.remove(stranger)
                self._turn_away(connection, f"{connection.peer} made room for others.")
                return True
        return False

    def _turn_away(self, connection: Connection, why: str) -> None:
        if len(self.refused) < 100:
            self.refused.append(why)
        connection.close()


def call(
    address: str,
    port: int,
    secret: bytes,
    *,
    timeout_s: float,
    me: str = "this process",
    peer: str | None = None,
    most_bytes: int = MOST_BYTES,
) -> Connection:
    """Call a door, and wait until it has proved that it knows the secret too.

    Who is turned away before that, because many others call, calls again.

    Raises:
        StartError: Nobody answers there, or one that does not know the secret.
    """
    deadline = time.monotonic() + timeout_s
    peer = peer or f"{address} port {port}"
    while True:
        left_s = deadline - time.monotonic()
        try:
            stream = socket.create_connection((address, port), max(left_s, 0.001))
        except OSError as error:
            why = out_of_descriptors(error) or f"{error.strerror or error}."
            raise StartError(f"{me} cannot reach {peer}: {why}") from error
        connection = Connection(
            stream, secret, caller=True, me=me, peer=peer, most_bytes=most_bytes
        )
        while not connection.proven and not connection.lost and time.monotonic() <= deadline:
            connection.advance()
            if not connection.proven:
                time.sleep(0.001)
        if connection.proven:
            return connection
        connection.close()
        if connection.lost and connection.why != _ENDED:
            raise StartError(connection.lost)
        pause_s = _CALL_AGAIN_S * random.uniform(0.5, 1.5)
        if time.monotonic() + pause_s > deadline:
            late = f"{peer} took the call of {me}, but did not answer in time."
            raise StartError(connection.lost or late)
        time.sleep(pause_s)

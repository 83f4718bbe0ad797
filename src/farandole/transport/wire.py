"""Messages between rank 0 and the others over TCP, each with a keyed digest.

A frame is length, digest, payload. The digest covers the direction, the sender's rank and the
frame's number, so that a frame cannot be forged, replayed, reordered or sent back. A payload's
first byte says whether it is a message, or news of a rank that rank 0 has lost.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time

from farandole.errors import PeerDiedError, StartError
from farandole.transport.protocol import Exchange

MOST_BYTES = 64 * 1024 * 1024
"""A longer frame is refused unread."""

_HEAD = struct.Struct("<I16s")
_KEY_BYTES = 32
_HELLO_TIMEOUT_S = 60.0
# What a caller gets to prove that it is one of ours: a stranger must not keep the ranks out.
_GREETING_TIMEOUT_S = 2.0
_MESSAGE, _NEWS = b"m", b"n"


class Connection:
    """One end of an authenticated stream of frames; never blocks."""

    def __init__(self, stream: socket.socket, key: bytes, *, rank: int, peer: int) -> None:
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = stream
        self._key = key
        self._rank, self.peer = rank, peer
        self._sent = self._received = 0
        self.lost = ""
        """Why nothing more comes from the other end; '' while it is there."""
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def send(self, message: bytes) -> None:
        """Queue a frame and push what the kernel takes."""
        digest = self._digest(self._rank, self._sent, message)
        self._sent += 1
        self._outgoing += _HEAD.pack(len(message), digest) + message
        self.flush()

    def flush(self) -> None:
        """Push what the kernel takes."""
        while self._outgoing and not self.lost:
            try:
                del self._outgoing[: self._stream.send(self._outgoing)]
            except BlockingIOError:
                return
            except OSError:
                self._lose("it has ended")

    def receive(self) -> list[bytes]:
        """Return the frames that have arrived whole, and no more after one that is not genuine."""
        self._read_all()
        messages = []
        while len(self._incoming) >= _HEAD.size:
            length, digest = _HEAD.unpack_from(self._incoming)
            if length > MOST_BYTES:
                self._lose(f"a message of {length} bytes was refused (at most {MOST_BYTES})")
                self._incoming.clear()
                break
            end = _HEAD.size + length
            if len(self._incoming) < end:
                break
            message = bytes(self._incoming[_HEAD.size : end])
            del self._incoming[:end]
            if not hmac.compare_digest(digest, self._digest(self.peer, self._received, message)):
                self._lose("a message with a wrong digest was refused")
                self._incoming.clear()
                break
            self._received += 1
            messages.append(message)
        return messages

    def close(self) -> None:
        """Close the socket."""
        self._stream.close()

    def _digest(self, sender: int, number: int, message: bytes) -> bytes:
        head = struct.pack("<IQ", sender, number)
        return hashlib.blake2b(head + message, key=self._key, digest_size=16).digest()

    def _read_all(self) -> None:
        while not self.lost:
            try:
                data = self._stream.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._incoming += data
            else:
                self._lose("it has ended")

    def _lose(self, why: str) -> None:
        self.lost = f"Rank {self._rank} lost its connection to rank {self.peer}: {why}."
        self._outgoing.clear()


class Wire:
    """The TCP Link (see transport.protocol): a star around rank 0."""

    def __init__(self, rank: int, size: int, exchange: Exchange, *, address: str) -> None:
        """Connect.

        Args:
            rank: my rank.
            size: number of ranks.
            exchange: a rendezvous of these ranks; it also carries the secret of this wire.
            address: where rank 0 listens.
        """
        self.loss = ""
        """Which rank was lost first, as far as this one knows; '' while all are there."""
        self._missed: set[int] = set()
        hello = b""
        if rank == 0:
            listener = socket.create_server((address, 0), backlog=size)
            key = secrets.token_bytes(_KEY_BYTES)
            hello = json.dumps([address, listener.getsockname()[1], key.hex()]).encode()
        host, port, secret = json.loads(exchange(hello)[0])
        key = bytes.fromhex(secret)
        if rank == 0:
            with listener:
                self._connections = _accept_all(listener, size, key)
        else:
            stream = socket.create_connection((host, port), _HELLO_TIMEOUT_S)
            connection = Connection(stream, key, rank=rank, peer=0)
            # The first frame says who is calling; its digest proves it.
            stream.setblocking(True)
            stream.sendall(struct.pack("<I", rank))
            stream.setblocking(False)
            connection.send(b"hello")
            self._connections = [connection]

    def send(self, message: bytes) -> None:
        """Send to everybody at the other end."""
        for connection in self._connections:
            connection.send(_MESSAGE + message)

    def receive(self) -> list[tuple[int, bytes]]:
        """Return what has arrived."""
        messages = []
        for connection in self._connections:
            connection.flush()
            for payload in connection.receive():
                if payload[:1] == _MESSAGE:
                    messages.append((connection.peer, payload[1:]))
                else:
                    self._note_loss(payload[1:].decode())
        for connection in [c for c in self._connections if c.lost and c.peer not in self._missed]:
            self._missed.add(connection.peer)
            self._note_loss(connection.lost)
            for other in self._connections:
                other.send(_NEWS + connection.lost.encode())
        return messages

    def check_peers(self) -> None:
        """Raise PeerDiedError if a rank is lost."""
        if self.loss:
            raise PeerDiedError(self.loss)

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections:
            connection.close()

    def _note_loss(self, text: str) -> None:
        # Who is lost later is so because of the first.
        self.loss = self.loss or text


def _accept_all(listener: socket.socket, size: int, key: bytes) -> list[Connection]:
    deadline = time.monotonic() + _HELLO_TIMEOUT_S
    connections: dict[int, Connection] = {}
    while len(connections) < size - 1:
        listener.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            stream, _ = listener.accept()
        except TimeoutError:
            missing = [str(r) for r in range(1, size) if r not in connections]
            raise StartError(
                f"No control connection from rank {', '.join(missing)} within "
                f"{_HELLO_TIMEOUT_S:.0f} s."
            ) from None
        connection = _greet(stream, size, key)
        if connection is None:
            stream.close()
        else:
            connections[connection.peer] = connection
    return [connections[rank] for rank in range(1, size)]


def _greet(stream: socket.socket, size: int, key: bytes) -> Connection | None:
    """Return the connection if the caller proves to be one of ours."""
    deadline = time.monotonic() + _GREETING_TIMEOUT_S
    stream.settimeout(_GREETING_TIMEOUT_S)
    try:
        (peer,) = struct.unpack("<I", stream.recv(4, socket.MSG_WAITALL))
        if not 0 < peer < size:
            return None
        connection = Connection(stream, key, rank=0, peer=peer)
        while time.monotonic() < deadline:
            if messages := connection.receive():
                return connection if messages == [b"hello"] else None
            if connection.lost:
                return None
            time.sleep(0.001)
    except (OSError, struct.error):
        return None
    return None

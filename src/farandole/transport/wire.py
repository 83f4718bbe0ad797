"""Messages between rank 0 and the others over authenticated connections (world.channel).

A payload's first byte says whether it is a message, or news of a rank that rank 0 has lost.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time

from farandole.errors import PeerDiedError, StartError
from farandole.transport.protocol import Exchange
from farandole.world.channel import Connection, Door, call

_KEY_BYTES = 32
_HELLO_TIMEOUT_S = 60.0
_PAUSE_S = 0.001
_MESSAGE, _NEWS = b"m", b"n"


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
        me = f"Rank {rank}"
        if rank == 0:
            key = secrets.token_bytes(_KEY_BYTES)
            with contextlib.closing(Door(address, key, me=me)) as door:
                exchange(json.dumps([address, door.port, key.hex()]).encode())
                self._connections = _accept_all(door, size)
        else:
            host, port, secret = json.loads(exchange(b"")[0])
            key = bytes.fromhex(secret)
            connection = call(host, port, key, timeout_s=_HELLO_TIMEOUT_S, me=me, peer="rank 0")
            connection.send(str(rank).encode())
            self._connections = {0: connection}

    def send(self, message: bytes) -> None:
        """Send to everybody at the other end."""
        for connection in self._connections.values():
            connection.send(_MESSAGE + message)

    def receive(self) -> list[tuple[int, bytes]]:
        """Return what has arrived."""
        messages = []
        for peer, connection in self._connections.items():
            for payload in connection.receive():
                if payload[:1] == _MESSAGE:
                    messages.append((peer, payload[1:]))
                else:
                    self._note_loss(payload[1:].decode())
        for peer, connection in self._connections.items():
            if not connection.lost or peer in self._missed:
                continue
            self._missed.add(peer)
            self._note_loss(connection.lost)
            for other in self._connections.values():
                other.send(_NEWS + connection.lost.encode())
        return messages

    def check_peers(self) -> None:
        """Raise PeerDiedError if a rank is lost."""
        if self.loss:
            raise PeerDiedError(self.loss)

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections.values():
            connection.close()

    def _note_loss(self, text: str) -> None:
        # Who is lost later is so because of the first.
        self.loss = self.loss or text


def _accept_all(door: Door, size: int) -> dict[int, Connection]:
    deadline = time.monotonic() + _HELLO_TIMEOUT_S
    connections: dict[int, Connection] = {}
    while len(connections) < size - 1:
        for connection, hello in door.accept():
            rank = int(hello)  # from one who knows the secret: a rank of ours
            connection.peer = f"rank {rank}"
            connections[rank] = connection
        if time.monotonic() > deadline:
            for connection in connections.values():
                connection.close()
            missing = [str(r) for r in range(1, size) if r not in connections]
            raise StartError(
                f"No control connection from rank {', '.join(missing)} within "
                f"{_HELLO_TIMEOUT_S:.0f} s."
            )
        if len(connections) < size - 1:
            time.sleep(_PAUSE_S)
    return dict(sorted(connections.items()))

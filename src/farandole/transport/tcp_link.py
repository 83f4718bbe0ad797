"""Messages between rank 0 and the others over authenticated connections (world.channel).

A payload's first byte says whether it is a message, news of a rank that rank 0 has lost, or the
step at which rank 0 wants all to stop.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import select
import time
from collections.abc import Sequence

from farandole.errors import PeerDiedError, StartError
from farandole.transport.protocol import Exchange
from farandole.world.channel import Connection, Door, call
from farandole.world.environment import is_loopback

_KEY_BYTES = 32
_HELLO_TIMEOUT_S = 60.0
_PAUSE_S = 0.001
_MESSAGE, _NEWS, _LAST_STEP = b"m", b"n", b"s"
# A host whose kernel says nothing for so long is lost. Agents, where there are some, take 5 s and
# know its name better; a second later is still within the 10 s in which all are to know.
SILENCE_S = 6
_CHECK_S = 0.5


class TcpLink:
    """The TCP Link (see transport.protocol): a star around rank 0."""

    def __init__(
        self,
        rank: int,
        size: int,
        exchange: Exchange,
        *,
        address: str,
        names: Sequence[str] = (),
    ) -> None:
        """Connect.

        Args:
            rank: my rank.
            size: number of ranks.
            exchange: a rendezvous of these ranks; it also carries the secret of this wire.
            address: where rank 0 listens.
            names: what messages call the ranks; "rank 3" and so on where none are given.
        """
        names = names or [f"rank {r}" for r in range(size)]
        self.loss = ""
        """Which rank was lost first, as far as this one knows; '' while all are there."""
        self._last_step = self._untold = 0
        self._lost_s: float | None = None
        self._missed: set[int] = set()
        self.me = me = names[rank][:1].upper() + names[rank][1:]
        if rank == 0:
            key = secrets.token_bytes(_KEY_BYTES)
            with contextlib.closing(Door(address, key, me=me)) as door:
                exchange(json.dumps([address, door.port, key.hex()]).encode())
                self._connections = _accept_all(door, names)
        else:
            host, port, secret = json.loads(exchange(b"")[0])
            key = bytes.fromhex(secret)
            connection = call(host, port, key, timeout_s=_HELLO_TIMEOUT_S, me=me, peer=names[0])
            connection.send(str(rank).encode())
            self._connections = {0: connection}
        if not is_loopback(address):
            for connection in self._connections.values():
                connection.notice_loss(SILENCE_S)
        self._next_check_s = 0.0
        # What came along with the greeting is here already.
        self._fresh = True
        self._poll = select.poll()
        for connection in self._connections.values():
            self._poll.register(connection, select.POLLIN)

    def send(self, message: bytes) -> None:
        """Send to everybody at the other end."""
        untold, self._untold = self._untold, 0
        for connection in self._connections.values() if untold else ():
            connection.send(_LAST_STEP + b"%d" % untold)
        for connection in self._connections.values():
            connection.send(_MESSAGE + message)

    @property
    def last_step(self) -> int | None:
        """The step at which all stop; set by rank 0."""
        return self._last_step

    @last_step.setter
    def last_step(self, step: int) -> None:
        # It goes with the next message: whoever trains must not send while another thread may.
        self._last_step = self._untold = step

    def receive(self) -> list[tuple[int, bytes]]:
        """Return what has arrived."""
        if not self._news():
            return []
        messages = []
        for peer, connection in self._connections.items():
            for payload in connection.receive():
                if payload[:1] == _MESSAGE:
                    messages.append((peer, payload[1:]))
                elif payload[:1] == _LAST_STEP:
                    self._last_step = int(payload[1:])
                else:
                    self._note_loss(payload[1:].decode())
        self._note_lost()
        return messages

    def _note_lost(self) -> None:
        """Take note of connections that are lost, and tell the others."""
        for peer, connection in self._connections.items():
            if not connection.lost or peer in self._missed:
                continue
            self._missed.add(peer)
            self._poll.unregister(connection)
            self._note_loss(connection.lost)
            for other in self._connections.values():
                other.send(_NEWS + connection.lost.encode())

    def _news(self) -> bool:
        """Say whether anything can be read or waits to be sent: one call, however many ranks."""
        first, self._fresh = self._fresh, False
        return (
            first
            or bool(self._poll.poll(0))
            or any(connection.backed_up for connection in self._connections.values())
        )

    def check_peers(self, grace_s: float = 0.0) -> None:
        """Raise PeerDiedError if a rank is lost, and was so some time ago."""
        now_s = time.monotonic()
        # What has arrived from one who is silent since may be all that was waited for.
        if now_s >= self._next_check_s and not self._poll.poll(0):
            self._next_check_s = now_s + _CHECK_S
            for connection in self._connections.values():
                connection.check_silence()
            self._note_lost()
        if self._lost_s is not None and time.monotonic() - self._lost_s >= grace_s:
            raise PeerDiedError(self.loss)

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections.values():
            connection.close()

    def _note_loss(self, text: str) -> None:
        # Who is lost later is so because of the first.
        if not self.loss:
            self.loss, self._lost_s = text, time.monotonic()


def _accept_all(door: Door, names: Sequence[str]) -> dict[int, Connection]:
    size = len(names)
    deadline = time.monotonic() + _HELLO_TIMEOUT_S
    connections: dict[int, Connection] = {}
    while len(connections) < size - 1:
        for connection, hello in door.accept():
            rank = int(hello)  # from one who knows the secret: a rank of ours
            connection.peer = names[rank]
            connections[rank] = connection
        if time.monotonic() > deadline:
            for connection in connections.values():
                connection.close()
            missing = [names[r] for r in range(1, size) if r not in connections]
            raise StartError(
                f"No control connection from {', '.join(missing)} within {_HELLO_TIMEOUT_S:.0f} s."
            )
        if len(connections) < size - 1:
            time.sleep(_PAUSE_S)
    return dict(sorted(connections.items()))

"""Pages in shared memory on which ranks of one host say what they wait for; one writer each."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from farandole.engine.stalls.judge import Key, Said
from farandole.transport.protocol import Exchange
from farandole.transport.shm.fabric import Fabric
from farandole.transport.shm.segment import LINE_BYTES

_REGION = "stalls"
_TEXT_BYTES = 64 * 1024 - LINE_BYTES
_VERSION, _LOOKS, _BLOCKED, _LENGTH, _CRC = range(5)


class Pages:
    """The pages of the ranks of this host."""

    def __init__(self, fabric: Fabric, ranks: Sequence[int], stack: str) -> None:
        self._fabric, self._ranks, self._me = fabric, list(ranks), fabric.rank
        places = range(len(ranks))
        self._words = [fabric.words(place, _REGION, 0, 5) for place in places]
        self._text = [fabric.bytes(place, _REGION, LINE_BYTES, _TEXT_BYTES) for place in places]
        self._stack = stack
        self._mine: tuple[tuple[Key, ...], bool] | None = None
        self._read: dict[int, tuple[Said, str]] = {}
        self.publish((), blocked=False)

    @classmethod
    def open(cls, ranks: Sequence[int], rank: int, exchange: Exchange, stack: str) -> Pages:
        """Make my page and map the others'; all ranks of the job call this together.

        Args:
            ranks: Those of this host, in rising order.
            rank: Mine.
            exchange: A rendezvous of all ranks of the job.
            stack: Where my stack can be asked for.

        Raises:
            SegmentError: There is no shared memory, on all ranks alike.
        """
        regions = {_REGION: LINE_BYTES + _TEXT_BYTES}
        place = list(ranks).index(rank)
        fabric = Fabric.open(place, len(ranks), exchange, regions, among=ranks)
        return cls(fabric, ranks, stack)

    def publish(self, waiting: Sequence[Key], *, blocked: bool) -> None:
        """Say what I wait for, and that I have looked."""
        words = self._words[self._me]
        state = (tuple(waiting), blocked)
        if state != self._mine:
            self._mine = state
            text, complete = _encode(waiting, self._stack)
            self._text[self._me][: len(text)] = memoryview(text)
            words[_LENGTH], words[_CRC] = len(text), zlib.crc32(text)
            words[_BLOCKED] = int(blocked) | int(complete) << 1
            words[_VERSION] += 1
        words[_LOOKS] += 1

    def read(self) -> dict[int, Said]:
        """Return what the ranks of this host say; who is just writing counts as before."""
        return {
            rank: said
            for place, rank in enumerate(self._ranks)
            if (said := self._said(place)) is not None
        }

    def stack(self, rank: int) -> str:
        """Return where a rank's stack can be asked for; "" where it cannot."""
        if rank not in self._ranks:
            return ""
        place = self._ranks.index(rank)
        self._said(place)
        return self._read[place][1] if place in self._read else ""

    def close(self) -> None:
        """Let go of the pages."""
        self._fabric.close()

    def _said(self, place: int) -> Said | None:
        words = self._words[place]
        version, looks = words[_VERSION], words[_LOOKS]
        known = self._read.get(place)
        if known is not None and known[0].version == version:
            if known[0].looks == looks:
                return known[0]
            said, stack = known
        else:
            text = self._text[place][: words[_LENGTH]].tobytes()
            if zlib.crc32(text) != words[_CRC] or not version:
                return known[0] if known is not None else None
            waiting, stack = _decode(text)
            flags = words[_BLOCKED]
            said = Said(waiting=waiting, complete=bool(flags & 2), blocked=bool(flags & 1))
        said = Said(
            waiting=said.waiting,
            complete=said.complete,
            blocked=said.blocked,
            version=version,
            looks=looks,
        )
        self._read[place] = (said, stack)
        return said


def _encode(waiting: Sequence[Key], stack: str) -> tuple[bytes, bool]:
    """Write what fits on a page; say whether that is all."""
    shown = list(waiting)
    while True:
        groups: dict[tuple[int, ...], list[str]] = {}
        for key in shown:
            groups.setdefault(key.members, []).append(key.name)
        text = json.dumps({"stack": stack, "waiting": list(groups.items())}).encode()
        if len(text) <= _TEXT_BYTES:
            return text, len(shown) == len(waiting)
        # The oldest come first, and it is they that stall.
        shown = shown[: len(shown) // 2]


def _decode(text: bytes) -> tuple[frozenset[Key], str]:
    said = json.loads(text)
    waiting = frozenset(
        Key(tuple(members), name) for members, names in said["waiting"] for name in names
    )
    return waiting, said["stack"]

"""Pages in shared memory on which ranks say what they wait for; one writer each.

A rank writes its own page. With several hosts, this host's forwarder writes those of ranks
elsewhere: everybody sees everybody's page. It is a thread of each host's lowest rank, in a star
around the first.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from farandole.stalls import stack
from farandole.transport.hosts import Hosts, exchange_among
from farandole.transport.protocol import Exchange
from farandole.transport.reduction import Array
from farandole.transport.shm.segment import LINE_BYTES, Fabric
from farandole.transport.tcp_link import TcpLink

# Who waits for whom: from what ranks say about themselves to stalls and deadlocks; pure.

JOIN = "join"
"""What a rank waits for that has no more data: it takes part in whatever the others submit."""


class Key(NamedTuple):
    """An operation among certain ranks."""

    members: tuple[int, ...]
    """All ranks that take part."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """What a rank says about itself."""

    waiting: frozenset[Key] = frozenset()
    """What it has submitted and others have not, as far as it knows."""
    complete: bool = True
    """Whether that is all of it; a page has an end."""
    blocked: bool = False
    """Whether it does nothing but wait."""
    version: int = 0
    """Grows when any of this changes."""
    looks: int = 0
    """How often it has looked; who looks is alive and not only late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """An operation that cannot begin."""

    key: Key
    waiting: tuple[int, ...]
    """The ranks that are known to have submitted it."""
    missing: tuple[int, ...]
    """The ranks that have not."""


def stalls(
    rank: int,
    said: Mapping[int, RankStatus],
    known: Mapping[Key, Sequence[int]],
) -> list[Stall]:
    """Return what a rank waits for in vain.

    Args:
        rank: Who asks.
        said: What the ranks say about themselves; some may not be seen from here.
        known: Who is missing for certain, where that is known better.
    """
    found = []
    for key in sorted(said[rank].waiting):
        seen = [member for member in key.members if member in said]
        joined = {m for m in seen if Key(key.members, JOIN) in said[m].waiting}
        waiting = tuple(member for member in seen if key in said[member].waiting)
        unsure = {member for member in seen if not said[member].complete}
        missing = set(known[key]) if key in known else set(seen) - set(waiting) - unsure
        if key.name != JOIN:
            missing -= joined
        if missing:
            found.append(Stall(key=key, waiting=waiting, missing=tuple(sorted(missing))))
    return found


def deadlock(size: int, said: Mapping[int, RankStatus]) -> list[Stall]:
    """Return what each rank waits for if all of them wait, and for nothing that can begin."""
    if len(said) < size or not all(each.blocked and each.waiting for each in said.values()):
        return []
    found = []
    for rank in sorted(said):
        mine = stalls(rank, said, {})
        if len(mine) < len(said[rank].waiting):
            return []
        found += [stall for stall in mine if stall.waiting[0] == rank]
    return found


def unchanged(
    before: Mapping[int, RankStatus], now: Mapping[int, RankStatus], *, looks: int
) -> bool:
    """Say whether every rank has looked so many times since, and nothing has changed."""
    return before.keys() == now.keys() and all(
        now[rank].version == each.version and now[rank].looks >= each.looks + looks
        for rank, each in before.items()
    )


# As many names of a rank as Horovod shows.
_SHOWN = 6


def headline(found: Sequence[Stall], waited_s: float) -> str:
    """Say in one line who is missing where."""
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    verb = "have" if len(first.missing) > 1 else "has"
    return (
        f"{_ranks(first.missing)} {verb} not submitted {first.key.name}{more}, for which "
        f"{_ranks(first.waiting)} waited {waited_s:.0f} s."
    )


def stall_report(
    found: Sequence[Stall], waited_s: float, stacks: Mapping[int, Sequence[str]]
) -> str:
    """Say which ranks are missing, for which tensors, and where these ranks are."""
    tensors: dict[int, list[str]] = {}
    for stall in found:
        for rank in stall.missing:
            tensors.setdefault(rank, []).append(stall.key.name)
    lines = [headline(found, waited_s), "Missing ranks:"]
    for rank in sorted(tensors):
        names = tensors[rank]
        more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines.append(f"{rank}: [{', '.join(names[:_SHOWN])}{more}]")
    return "\n".join([*lines, *_where(sorted(tensors), stacks)])


def deadlock_report(found: Sequence[Stall], stacks: Mapping[int, Sequence[str]]) -> str:
    """Say who waits for whom."""
    lines = ["all ranks wait for each other, and none can go on:"]
    for stall in found:
        verb = "have" if len(stall.missing) > 1 else "has"
        waits = "wait" if len(stall.waiting) > 1 else "waits"
        lines.append(
            f"{_ranks(stall.waiting)} {waits} for {stall.key.name}, which "
            f"{_ranks(stall.missing)} {verb} not submitted"
        )
    lines.append(
        "Every rank must submit the same names; look for a branch that only some ranks take."
    )
    return "\n".join([*lines, *_where(sorted(stacks), stacks)])


def _where(ranks: Sequence[int], stacks: Mapping[int, Sequence[str]]) -> list[str]:
    lines = []
    for rank in ranks:
        stack = stacks.get(rank)
        if stack:
            lines.append(f"rank {rank} is here (most recent call first):")
            lines += stack
        else:
            lines.append(f"where rank {rank} is cannot be seen from here")
    return lines


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 * _SHOWN:
        shown = ", ".join(map(str, ranks[:_SHOWN]))
        return f"ranks {shown} and {len(ranks) - _SHOWN} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


_HERE, _ABROAD = "stalls", "stalls abroad"
# There may be a thousand ranks elsewhere, and their memory is really taken.
_BYTES = {_HERE: 64 * 1024, _ABROAD: 16 * 1024}
_VERSION, _LOOKS, _LENGTH, _CRC, _WORDS = range(5)
# A request and its answer wait for two forwarders each; then some ranks are asked in turn.
_ANSWER_S = 6.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What stands on a page."""

    waiting: tuple[Key, ...] = ()
    """What the rank waits for, the oldest first."""
    complete: bool = True
    """Whether that is all of it; a page has an end."""
    blocked: bool = False
    stack: str = ""
    """Where its stack can be asked for by processes of its host."""
    wanted: tuple[int, ...] = ()
    """The ranks elsewhere whose stacks it asks for."""
    answer: int = 0
    """Grows with each stack that its forwarder has sent."""
    lines: tuple[str, ...] = ()
    """The last of those."""

    def to_json(self) -> dict[str, Any]:
        """Return it for JSON; names that have their ranks in common share them."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for key in self.waiting:
            groups.setdefault(key.members, []).append(key.name)
        return {
            "waiting": list(groups.items()),
            "complete": self.complete,
            "blocked": self.blocked,
            "stack": self.stack,
            "wanted": self.wanted,
            "answer": self.answer,
            "lines": self.lines,
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Note:
        """Read it back."""
        keys = [Key(tuple(members), name) for members, names in said["waiting"] for name in names]
        tuples = {name: tuple(said[name]) for name in ("wanted", "lines")}
        return cls(**{**said, "waiting": tuple(keys), **tuples})

    def encode(self, most_bytes: int) -> bytes:
        """Write as much as fits."""
        note = self
        while len(text := json.dumps(note.to_json()).encode()) > most_bytes:
            if not note.waiting:
                # The innermost calls come first.
                note = replace(note, lines=note.lines[: len(note.lines) // 2])
            else:
                # The oldest come first, and it is they that stall.
                kept = note.waiting[: len(note.waiting) // 2]
                note = replace(note, waiting=kept, complete=False)
        return text


class Page:
    """One page; each who reads or writes it has an object of their own."""

    def __init__(self, words: memoryview, text: Array) -> None:
        self._words, self._text = words, text
        self._note = Note()
        self._said: RankStatus | None = None
        self._written: Note | None = None

    def write(self, note: Note, *, looks: int | None = None) -> None:
        """Put a note on it, and count a look; or set the count, as another host had it."""
        words = self._words
        if note != self._written:
            self._written = note
            text = note.encode(len(self._text))
            self._text[: len(text)] = memoryview(text)
            words[_LENGTH], words[_CRC] = len(text), zlib.crc32(text)
            words[_VERSION] += 1
        words[_LOOKS] = words[_LOOKS] + 1 if looks is None else looks

    def wipe(self) -> None:
        """Let nobody believe what stands there."""
        self._words[_VERSION] = 0

    def read(self) -> tuple[RankStatus, Note] | None:
        """Return what it says; as before while somebody is writing, None while it is empty."""
        words = self._words
        version, looks = words[_VERSION], words[_LOOKS]
        if not version:
            return None
        if self._said is None or self._said.version != version:
            text = self._text[: words[_LENGTH]].tobytes()
            if zlib.crc32(text) == words[_CRC]:
                self._note = note = Note.from_json(json.loads(text))
                self._said = RankStatus(
                    waiting=frozenset(note.waiting),
                    complete=note.complete,
                    blocked=note.blocked,
                    version=version,
                    looks=looks,
                )
        elif self._said.looks != looks:
            self._said = replace(self._said, looks=looks)
        return None if self._said is None else (self._said, self._note)


class Pages:
    """The pages of all ranks that are seen from this host."""

    def __init__(self, fabric: Fabric, hosts: Hosts, rank: int, path: str) -> None:
        here = hosts.ranks[hosts.of(rank)]
        self._fabric, self._rank, self._path = fabric, rank, path
        self._here = {other: place for place, other in enumerate(here)}
        elsewhere = sorted(set(range(hosts.size)) - set(here))
        self._abroad = {other: number for number, other in enumerate(elsewhere)}
        self._pages = {other: self.page(other) for other in range(hosts.size)}
        self._mine = Note(stack=path)
        self._pages[rank].write(self._mine)

    @classmethod
    def open(cls, hosts: Hosts, rank: int, exchange: Exchange, path: str) -> Pages:
        """Make my page and map the others'; all ranks of the job call this together.

        Args:
            hosts: The ranks of the job by host.
            rank: Mine.
            exchange: A rendezvous of all ranks of the job.
            path: Where my stack can be asked for.

        Raises:
            SegmentError: There is no shared memory, on all ranks alike.
        """
        here = hosts.ranks[hosts.of(rank)]
        fabric = Fabric.open(
            here.index(rank),
            len(here),
            exchange,
            {_HERE: _BYTES[_HERE]},
            of_first={_ABROAD: _BYTES[_ABROAD] * (hosts.size - len(here))},
            among=here,
        )
        return cls(fabric, hosts, rank, path)

    @property
    def here(self) -> list[int]:
        """The ranks of this host."""
        return list(self._here)

    @property
    def abroad(self) -> list[int]:
        """The ranks of other hosts."""
        return list(self._abroad)

    def page(self, rank: int) -> Page:
        """Return a rank's page for one more reader or writer."""
        if rank in self._here:
            place, region, number = self._here[rank], _HERE, 0
        else:
            place, region, number = 0, _ABROAD, self._abroad[rank]
        begin = number * _BYTES[region]
        return Page(
            self._fabric.words(place, region, begin, _WORDS),
            self._fabric.bytes(place, region, begin + LINE_BYTES, _BYTES[region] - LINE_BYTES),
        )

    def publish(self, waiting: Sequence[Key], *, blocked: bool) -> None:
        """Say what I wait for, and that I have looked."""
        self._mine = Note(waiting=tuple(waiting), blocked=blocked, stack=self._path)
        self._pages[self._rank].write(self._mine)

    def read(self) -> dict[int, RankStatus]:
        """Return what the ranks say; who is just writing counts as before."""
        seen = {rank: page.read() for rank, page in self._pages.items()}
        return {rank: found[0] for rank, found in seen.items() if found is not None}

    def stacks(self, ranks: Iterable[int]) -> dict[int, Sequence[str]]:
        """Return where ranks are, the most recent call first; nothing of who does not answer."""
        ranks = list(ranks)
        answered = {rank: self._note(rank).answer for rank in ranks if rank in self._abroad}
        if answered:
            self._pages[self._rank].write(replace(self._mine, wanted=tuple(answered)))
        found: dict[int, Sequence[str]] = {
            rank: stack.ask(self._note(rank).stack) for rank in ranks if rank in self._here
        }
        deadline = time.monotonic() + _ANSWER_S
        while answered and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            for rank in [r for r, before in answered.items() if self._note(r).answer != before]:
                found[rank] = self._note(rank).lines
                del answered[rank]
        return found

    def close(self) -> None:
        """Let go of the pages."""
        self._fabric.close()

    def _note(self, rank: int) -> Note:
        found = self._pages[rank].read()
        return Note() if found is None else found[1]


# The forwarder works while its rank does something else, which is when its rank is missed. Notes
# and stacks go out when they have changed; while nobody waits for long, nothing is sent.

# Four of these pass at most between a request for a stack and its answer.
_FORWARD_EVERY_S = 0.2


class Forwarder:
    """Tells the other hosts what the ranks of this one say, and notes here what they tell."""

    def __init__(self, pages: Pages, wire: TcpLink, *, hub: bool) -> None:
        """Begin.

        Args:
            pages: Those of this host.
            wire: To the first host; of that one, to all the others.
            hub: Whether this is the first host, which passes on what it hears.
        """
        self._wire, self._hub = wire, hub
        self._here = {rank: pages.page(rank) for rank in pages.here}
        self._abroad = {rank: pages.page(rank) for rank in pages.abroad}
        self._known: dict[int, dict[str, Any]] = {}
        """Of each rank what is known: its looks, its note, its stack with a number."""
        self._news: dict[int, dict[str, Any]] = {}
        """The parts of it that others have not been told."""
        self._answers = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="farandole-forwarder", daemon=True)

    @classmethod
    def open(
        cls, pages: Pages, hosts: Hosts, rank: int, exchange: Exchange, address: str
    ) -> Forwarder | None:
        """Connect the hosts, and begin; all ranks call this together, and most get None.

        Args:
            pages: Those of this host.
            hosts: The ranks of the job by host, of which there are several.
            rank: This one.
            exchange: A rendezvous of all ranks.
            address: Where other hosts reach this rank.
        """
        if rank not in hosts.leaders:
            exchange(b"")
            return None
        number, meeting = hosts.of(rank), exchange_among(exchange, hosts.leaders)
        wire = TcpLink(number, len(hosts.leaders), meeting, address=address, names=hosts.names)
        forwarder = cls(pages, wire, hub=number == 0)
        forwarder._thread.start()
        return forwarder

    def close(self) -> None:
        """Stop, and hang up."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._wire.close()

    def turn(self) -> None:
        """Hear, answer and tell once."""
        for _, message in self._wire.receive():
            for rank, news in json.loads(message).items():
                self._hear(int(rank), news)
        for rank, page in self._here.items():
            found = page.read()
            if found is not None:
                said, note = found
                self._tell(rank, {"looks": said.looks, "note": note.to_json()})
        if self._news:
            self._wire.send(json.dumps(self._news).encode())
            self._news = {}

    def _run(self) -> None:
        while not self._stopped.wait(_FORWARD_EVERY_S):
            self.turn()
            if self._wire.loss:
                # A host has left, and all of them will follow.
                break
        for page in self._abroad.values():
            page.wipe()

    def _tell(self, rank: int, facts: dict[str, Any]) -> None:
        """Remember facts about a rank, and to tell those that are new."""
        known = self._known.setdefault(rank, {})
        new = {name: fact for name, fact in facts.items() if known.get(name) != fact}
        known.update(new)
        if new:
            self._news.setdefault(rank, {}).update(new)

    def _hear(self, rank: int, news: dict[str, Any]) -> None:
        if rank not in self._abroad:
            return  # the first host passes on what this one has told
        if self._hub:
            self._tell(rank, news)
        known = self._known.setdefault(rank, {})
        known.update(news)
        note = Note.from_json(known["note"])
        answer, lines = known.get("stack", (0, ()))
        self._abroad[rank].write(
            replace(note, answer=answer, lines=tuple(lines)), looks=known["looks"]
        )
        for wanted in note.wanted if "note" in news else ():
            if wanted in self._here:
                self._answer(wanted)

    def _answer(self, rank: int) -> None:
        found = self._here[rank].read()
        self._answers += 1
        lines = [] if found is None else stack.ask(found[1].stack)
        self._tell(rank, {"stack": [self._answers, lines]})

"""What carries pages between hosts: a thread of each host's lowest rank, a star around the first.

It works while its rank does something else, which is when its rank is missed. Notes and stacks go
out when they have changed; while nobody waits for long, nothing is sent.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

from farandole.stalls import stack
from farandole.stalls.pages import Note, Pages
from farandole.transport.hosts import Hosts, exchange_among
from farandole.transport.protocol import Exchange
from farandole.transport.tcp_link import TcpLink

# Four of these pass at most between a request for a stack and its answer.
_EVERY_S = 0.2


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
        while not self._stopped.wait(_EVERY_S):
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

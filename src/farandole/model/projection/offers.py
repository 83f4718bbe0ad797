"""Offers of machines: what a user was offered, read from a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.model.projection.asked import Price, amount_above_zero, parse_price
from farandole.model.projection.records import LinkSpeed

FORM = (
    "'NAME: WORKERS, N per host, LINK, PRICE, speed X', as in "
    "'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'; only the name and the workers must be "
    "there"
)
_WORKERS = re.compile(r"(\d+)(?:\s*(?:workers?|gpus?))?", re.IGNORECASE)
_PER_HOST = re.compile(r"(\d+)\s*(?:per|/)\s*(?:host|node)", re.IGNORECASE)
_SPEED = re.compile(r"speed\s*(?:x|=)?\s*([0-9.]+)\s*x?", re.IGNORECASE)
_PRICE = re.compile(r"[$€£]?\s*[0-9.]+\s*(?:/|per\s)\s*(?:worker|gpu|host|node).*", re.IGNORECASE)
_LATENCY = re.compile(r"[0-9.]+\s*(?:us|ms|ns|s)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Machines that somebody offers."""

    name: str
    text: str
    """As the user wrote it, without the name."""
    workers: int
    per_host: int | None = None
    """None: all of them on one host."""
    link: LinkSpeed | None = None
    """Between hosts, or within the one."""
    price: Price | None = None
    speed: float = 1.0
    """How many times as fast as the measured machine's a worker computes."""


def parse_offer(line: str) -> Offer:
    """Read an offer; its parts may stand in any order.

    Raises:
        UsageError: when it does not parse, or says one thing twice; the message shows the form.
    """
    name, colon, rest = line.partition(":")
    name = name.strip()
    if not colon or not name:
        raise _wrong(line, "it has no name before a colon")
    found: dict[str, object] = {}
    for part in _parts(rest):
        key, value = _read(line, part)
        if key in found:
            raise _wrong(line, f"it says its {_SAID[key]} twice")
        found[key] = value
    if "workers" not in found:
        raise _wrong(line, "it does not say how many workers")
    offer = Offer(name=name, text=rest.strip(), **found)  # type: ignore[arg-type]
    if offer.workers < 1 or offer.per_host == 0:
        raise _wrong(line, "workers are counted from 1 up")
    return offer


def check_names(offers: tuple[Offer, ...]) -> None:
    """Refuse two offers of one name."""
    names = [offer.name for offer in offers]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Two offers are called {name}. Give each --offer a name of its own.")


_SAID = {
    "workers": "number of workers",
    "per_host": "workers per host",
    "link": "link",
    "price": "price",
    "speed": "speed",
}


def _parts(text: str) -> list[str]:
    """Split at commas; a latency belongs to the rate before it."""
    parts: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        if parts and _LATENCY.fullmatch(part):
            parts[-1] += f",{part}"
        elif part:
            parts.append(part)
    return parts


def _read(line: str, part: str) -> tuple[str, object]:
    """Tell what one part of an offer says."""
    if match := _WORKERS.fullmatch(part):
        return "workers", int(match[1])
    if match := _PER_HOST.fullmatch(part):
        return "per_host", int(match[1])
    if match := _SPEED.fullmatch(part):
        speed = amount_above_zero(match[1])
        if speed is None:
            raise _wrong(line, f"{part!r} is no speed above 0")
        return "speed", speed
    if _PRICE.fullmatch(part):
        try:
            return "price", parse_price(part)
        except UsageError as error:
            raise _wrong(line, f"{part!r} is no price per hour above 0") from error
    from farandole.model.projection.links import parse_link

    try:
        return "link", parse_link(part)
    except UsageError as error:
        raise _wrong(line, f"{part!r} is none of its parts") from error


def _wrong(line: str, why: str) -> UsageError:
    return UsageError(f"--offer {line!r}: {why}. Write {FORM}.")

"""A question about more workers, read from what a user wrote: counts, links, prices, offers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from farandole.errors import UsageError
from farandole.model.curves import Prefer

# One way, of one host or (nvlink) one GPU; what a rate alone does not tell: InfiniBand is no
# Ethernet. Latencies are of one message through NCCL or Gloo, not of a ping.
_NAMED_LINKS = {"infiniband": (200e9 / 8, 5e-6), "nvlink": (200e9, 5e-6)}
# Up to so many bytes a second, however they are written: TCP on Ethernet takes tens of
# microseconds, the less the faster it is. Faster than 800 Gbit is between GPUs only.
_LATENCIES = ((20e9 / 8, 50e-6), (80e9 / 8, 30e-6), (800e9 / 8, 20e-6), (math.inf, 5e-6))
_RATE = re.compile(r"([0-9]*\.?[0-9]+)\s*([kmgt])(bits?|i?b)(?:/s|ps)?", re.IGNORECASE)
_LATENCY = re.compile(r"([0-9]*\.?[0-9]+)\s*(ns|us|ms|s)", re.IGNORECASE)
_LATENCY_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_LINK_FORM = "Write 10Gbit, 25Gbit, 100Gbit, nvlink, or RATE[,LATENCY] as in 40Gbit,20us or 3GB/s."
# Beyond a link of 10 TB/s or a latency of a second, a unit was mistaken.
_FASTEST_BYTES_PER_S = 1e13
_SLOWEST_S = 1.0

_PRICE = re.compile(
    r"[$€£]?\s*(?P<amount>[0-9.]+)\s*"
    r"(?:(?:/|per\s+)?\s*(?P<who>worker|gpu|host|node)\s*(?:[-/ ]\s*(?P<hour>h|hr|hour))?)?",
    re.IGNORECASE,
)
_PRICE_FORM = "--price 2.5 (a worker and hour), 2.5/worker-h or 12/host-h"
_HOUR_S = 3600.0

_OFFER_FORM = (
    "'NAME: WORKERS, N per host, LINK, PRICE, speed X', as in "
    "'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'; only the name and the workers must be "
    "there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeed:
    """What connects hosts, or the workers of one."""

    name: str
    """As the user wrote it: "25Gbit"."""
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour costs."""

    amount: float
    per: Literal["worker", "host"]
    text: str
    """As the user wrote it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a user wants to know."""

    workers: tuple[int, ...] = ()
    links: tuple[LinkSpeed, ...] = ()
    """None: three usual ones, beyond the measured host."""
    per_host: int | None = None
    """Workers on one host; None: as many as the measured one has."""
    price: Price | None = None
    target: tuple[str, float] | None = None
    deadline_s: float | None = None
    budget: float | None = None
    batch: int | None = None
    """Per worker, and the same at every count; None: as the study scales."""
    bucket_bytes: int | None = None
    fp16: bool = False
    """Whether gradients travel in half of their bytes."""
    accumulate: int = 1
    prefer: Prefer = "balance"
    """What the number of workers is recommended by."""
    offers: tuple[Offer, ...] = ()
    fleet: int | None = None
    only: tuple[tuple[str, str], ...] = ()
    """Factors and values that cells of the study must have: (("device", "V100"),)."""

    @property
    def changes_buckets(self) -> bool:
        """Whether gradients are to go otherwise than measured, which only a replay can tell."""
        return self.bucket_bytes is not None or self.fp16

    def check(self) -> None:
        """Refuse flags that do not go together.

        Raises:
            UsageError: a flag needs another one, or two offers have one name.
        """
        if not self.workers and not self.offers and self.fleet is None:
            raise UsageError(
                "Say how many workers to project to (-np 8,16,64), or give an --offer or a --fleet."
            )
        if self.budget is not None and self.price is None:
            raise UsageError(
                f"--budget {self.budget:g} needs a price to compare with. Add {_PRICE_FORM}."
            )
        names = [offer.name for offer in self.offers]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(
                f"Two offers are called {twice[0]}. Give each --offer a name of its own."
            )

    def flags(self) -> list[str]:
        """Return the flags of `farandole project` that ask this."""
        bucket_mb = None if self.bucket_bytes is None else self.bucket_bytes / 1e6
        pairs: list[tuple[str, object]] = [
            ("-np", ",".join(map(str, self.workers)) or None),
            *(("--link", link.name) for link in self.links),
            ("--per-host", self.per_host),
            *(("--offer", f"{offer.name}: {offer.text}") for offer in self.offers),
            ("--fleet", self.fleet),
            *(("--only", f"{name}={value}") for name, value in self.only),
            ("--target", self.target and f"{self.target[0]}={_decimal(self.target[1])}"),
            ("--deadline", self.deadline_s and f"{_decimal(self.deadline_s)}s"),
            ("--price", self.price and self.price.text),
            ("--budget", self.budget and _decimal(self.budget)),
            ("--batch", self.batch),
            ("--bucket-size", bucket_mb and _decimal(bucket_mb)),
            ("--accumulate", self.accumulate if self.accumulate > 1 else None),
            ("--prefer", self.prefer if self.prefer != "balance" else None),
        ]
        flags = [part for flag, value in pairs if value is not None for part in (flag, str(value))]
        return [*flags, "--fp16"] if self.fp16 else flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Workers to project to, where they run, and what they cost."""

    workers: int
    per_host: int
    link: LinkSpeed | None = None
    """Between hosts, or between the workers of one; None: as measured."""
    price: Price | None = None
    whole_hosts: bool = False
    """Whether one host is billed as a whole, too, its size being given."""
    speed: float = 1.0
    """How many times as fast as the measured machine's a worker computes."""
    measured_hosts: int | None = None
    """How many it was measured on; None where it was not."""

    @property
    def hosts(self) -> int:
        """How many it is on: those it was measured on, or as many as are needed."""
        return self.measured_hosts or math.ceil(self.workers / self.per_host)

    @property
    def linked(self) -> int:
        """How many hosts the link connects, or how many workers of a single one."""
        return self.workers if self.link is not None and self.hosts == 1 else self.hosts

    @property
    def cost_per_s(self) -> float | None:
        """What a second costs, whole hosts billed; None without a price.

        A price of a worker pays for all workers of every host. On a single host of a size that
        nobody gave, only those in use are paid for: it may be rented smaller.
        """
        if self.price is None:
            return None
        if self.price.per == "host":
            return self.hosts * self.price.amount / _HOUR_S
        whole = self.hosts > 1 or self.whole_hosts
        billed = self.hosts * self.per_host if whole else self.workers
        return billed * self.price.amount / _HOUR_S


def parse_link(text: str) -> LinkSpeed:
    """Read a link's name, or its rate and latency: 25Gbit, nvlink, 3GB/s,40us.

    Raises:
        UsageError: It is neither; the message shows the form.
    """

    def wrong(why: str) -> UsageError:
        return UsageError(f"--link {text}{why}. {_LINK_FORM}")

    rate_text, comma, latency_text = (part.strip() for part in text.partition(","))
    if rate_text.lower() in _NAMED_LINKS:
        rate, latency = _NAMED_LINKS[rate_text.lower()]
    else:
        match = _RATE.fullmatch(rate_text)
        if match is None:
            raise wrong(" is no link")
        digits, prefix, unit = match.groups()
        power = "kmgt".index(prefix.lower()) + 1
        if unit.lower().startswith("bit") or (unit == "b" and prefix.isupper()):
            scale = 1000.0**power / 8
        elif unit.endswith("B"):
            scale = (1024.0 if unit.lower() == "ib" else 1000.0) ** power
        else:
            raise UsageError(f"--link {text}: bits or bytes? {_LINK_FORM}")
        rate = float(digits) * scale
        if not 0 < rate <= _FASTEST_BYTES_PER_S:
            raise wrong(f": no link moves {rate:.3g} bytes a second")
        latency = next(usual for limit, usual in _LATENCIES if rate <= limit)
    if comma:
        match = _LATENCY.fullmatch(latency_text)
        if match is None:
            raise wrong(f": {latency_text!r} is no latency")
        latency = float(match[1]) * _LATENCY_S[match[2].lower()]
        if not 0 <= latency < _SLOWEST_S:
            raise wrong(f": no message takes {latency:g} s")
    return LinkSpeed(name=text.strip(), bytes_per_s=rate, latency_s=latency)


def default_links() -> tuple[LinkSpeed, ...]:
    """Return the three that are shown when nobody said what connects the hosts."""
    return tuple(parse_link(name) for name in ("10Gbit", "25Gbit", "100Gbit"))


def parse_price(text: str) -> Price:
    """Read what an hour costs: 2.5, 2.5/worker-h, 12/host-h.

    Raises:
        UsageError: when it is none of these, or not above 0.
    """
    match = _PRICE.fullmatch(text.strip())
    wrong = f"--price {text} is no price per hour above 0. Write {_PRICE_FORM}."
    if match is None:
        raise UsageError(wrong)
    amount, who = parse_amount(match["amount"], wrong), (match["who"] or "").lower()
    if who and not match["hour"]:
        raise UsageError(
            f"--price {text} does not say for how long. Write {match['amount']}/{who}-h for an "
            "hour."
        )
    per: Literal["worker", "host"] = "host" if who in ("host", "node") else "worker"
    return Price(amount=amount, per=per, text=text.strip())


def parse_offer(line: str) -> Offer:
    """Read an offer; its parts may stand in any order.

    Raises:
        UsageError: when it does not parse, or says one thing twice; the message shows the form.
    """

    def wrong(why: str) -> UsageError:
        return UsageError(f"--offer {line!r}: {why}. Write {_OFFER_FORM}.")

    name, colon, rest = line.partition(":")
    if not colon or not name.strip():
        raise wrong("it has no name before a colon")
    parts: list[str] = []
    for part in filter(None, map(str.strip, rest.split(","))):
        if parts and _LATENCY.fullmatch(part):
            parts[-1] += f",{part}"  # a latency belongs to the rate before it
        else:
            parts.append(part)
    found: dict[str, Any] = {}
    for part in parts:
        tries = ((field, re.fullmatch(field[2], part, re.IGNORECASE)) for field in _OFFER_FIELDS)
        (key, title, _, read, complaint), match = next(one for one in tries if one[1])
        if key in found:
            raise wrong(f"it says its {title} twice")
        try:
            found[key] = read(match[1] if match else part)
        except UsageError as error:
            raise wrong(f"{part!r} is {complaint}") from error
    if "workers" not in found:
        raise wrong("it does not say how many workers")
    if found["workers"] < 1 or found.get("per_host") == 0:
        raise wrong("workers are counted from 1 up")
    return Offer(name=name.strip(), text=rest.strip(), **found)


def parse_only(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Read `--only NAME=VALUE` flags.

    Raises:
        UsageError: when one has no name or no value.
    """
    found = []
    for text in texts:
        for part in text.split(","):
            name, _, value = map(str.strip, part.partition("="))
            if not name or not value:
                raise UsageError(f"--only {text} is not NAME=VALUE, as in --only device=V100.")
            found.append((name, value))
    return tuple(found)


def parse_amount(text: str, wrong: str) -> float:
    """Read a finite number above 0.

    Raises:
        UsageError: it is none; the message is `wrong`.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(wrong)
    return value


def _decimal(value: float) -> str:
    """Write all digits of a number, without an exponent."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")


# Field, its name in a complaint, its form, how it is read, and what is said of a wrong one. A link
# is what has no other form.
_OFFER_FIELDS: tuple[tuple[str, str, str, Callable[[str], Any], str], ...] = (
    ("workers", "number of workers", r"(\d+)(?:\s*(?:workers?|gpus?))?", int, ""),
    ("per_host", "workers per host", r"(\d+)\s*(?:per|/)\s*(?:host|node)", int, ""),
    (
        *("speed", "speed", r"speed\s*(?:x|=)?\s*([0-9.]+)\s*x?"),
        *(lambda text: parse_amount(text, text), "no speed above 0"),
    ),
    (
        *("price", "price", r"([$€£]?\s*[0-9.]+\s*(?:/|per\s)\s*(?:worker|gpu|host|node).*)"),
        *(parse_price, "no price per hour above 0"),
    ),
    ("link", "link", r"(.*)", parse_link, "none of its parts"),
)

"""What a user asks of a projection, read from what they wrote."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from farandole.errors import UsageError
from farandole.model.projection.records import LinkSpeed

if TYPE_CHECKING:
    from farandole.model.projection.offers import Offer

_PRICE = re.compile(
    r"[$€£]?\s*(?P<amount>[0-9.]+)\s*"
    r"(?:(?:/|per\s+)?\s*(?P<who>worker|gpu|host|node)\s*(?:[-/ ]\s*(?P<hour>h|hr|hour))?)?",
    re.IGNORECASE,
)
PRICE_FORM = "--price 2.5 (a worker and hour), 2.5/worker-h or 12/host-h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour costs."""

    amount: float
    per: Literal["worker", "host"]
    text: str
    """As the user wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question about more workers."""

    workers: tuple[int, ...]
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
    offers: tuple[Offer, ...] = ()
    fleet: int | None = None
    only: tuple[tuple[str, str], ...] = ()
    """Factors and values of the study's cells to stand on: (("device", "V100"),)."""

    @property
    def changes_buckets(self) -> bool:
        """Whether gradients are to go otherwise than measured, which a replay alone can tell."""
        return self.bucket_bytes is not None or self.fp16


def check(asked: Asked) -> None:
    """Refuse flags that do not go together.

    Raises:
        UsageError: when something is asked for that another flag would have to say.
    """
    if not asked.workers and not asked.offers and asked.fleet is None:
        raise UsageError(
            "Say how many workers to project to (-np 8,16,64), or give an --offer or a --fleet."
        )
    if asked.budget is not None and asked.price is None:
        raise UsageError(
            f"--budget {asked.budget:g} needs a price to compare with. Add {PRICE_FORM}."
        )


def flags_of(asked: Asked) -> list[str]:
    """Return a question as the flags of `farandole project` that ask it."""
    deadline = None if asked.deadline_s is None else f"{_decimal(asked.deadline_s)}s"
    size = None if asked.bucket_bytes is None else _decimal(asked.bucket_bytes / 1e6)
    pairs: list[tuple[str, object]] = [
        ("-np", ",".join(map(str, asked.workers)) or None),
        *(("--link", link.name) for link in asked.links),
        ("--per-host", asked.per_host),
        *(("--offer", f"{offer.name}: {offer.text}") for offer in asked.offers),
        ("--fleet", asked.fleet),
        *(("--only", f"{name}={value}") for name, value in asked.only),
        ("--target", asked.target and f"{asked.target[0]}={_decimal(asked.target[1])}"),
        ("--deadline", deadline),
        ("--price", asked.price and asked.price.text),
        ("--budget", None if asked.budget is None else _decimal(asked.budget)),
        ("--batch", asked.batch),
        ("--bucket-size", size),
        ("--accumulate", asked.accumulate if asked.accumulate > 1 else None),
    ]
    said = [part for flag, value in pairs if value is not None for part in (flag, str(value))]
    return [*said, "--fp16"] if asked.fp16 else said


def _decimal(value: float) -> str:
    """Write all digits of a number, without an exponent."""
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def parse_price(text: str, *, flag: str = "--price") -> Price:
    """Read what an hour costs: 2.5, 2.5/worker-h, 12/host-h.

    Raises:
        UsageError: when it is none of these, or not above 0.
    """
    match = _PRICE.fullmatch(text.strip())
    amount = amount_above_zero(match["amount"]) if match else None
    if match is None or amount is None:
        raise UsageError(f"{flag} {text} is no price per hour above 0. Write {PRICE_FORM}.")
    if match["who"] and not match["hour"]:
        raise UsageError(
            f"{flag} {text} does not say for how long. Write {match['amount']}/"
            f"{match['who'].lower()}-h for an hour."
        )
    host = (match["who"] or "").lower() in ("host", "node")
    return Price(amount=amount, per="host" if host else "worker", text=text.strip())


def parse_only(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Read `--only NAME=VALUE` flags.

    Raises:
        UsageError: when one has no name or no value.
    """
    found = []
    for text in texts:
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise UsageError(f"--only {text} is not NAME=VALUE, as in --only device=V100.")
            found.append((name.strip(), value.strip()))
    return tuple(found)


def amount_above_zero(text: str) -> float | None:
    """Return a finite number above 0; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None

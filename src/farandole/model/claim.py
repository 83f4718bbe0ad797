"""Figures that somebody derived, derived again: right to the digits given, or a slip."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from farandole.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A published figure beside what its own inputs give."""

    what: str
    claimed: str
    """As published, since its digits say how exact it means to be."""
    value: float
    agrees: bool
    sentence: str


def check_claim(what: str, kind: str, first: float, second: float, claimed: str) -> Claim:
    """Derive a figure again and compare it to the digits given.

    Args:
        what: the figure's name.
        kind: "ratio" is first / second, "less" is 1 - second / first.
        first: see kind.
        second: see kind.
        claimed: as published.

    Raises:
        UsageError: when the kind is not known.
    """
    if kind == "ratio":
        value, formula = first / second, f"{first:.10g} / {second:.10g}"
    elif kind == "less":
        value, formula = 1 - second / first, f"1 - {second:.10g} / {first:.10g}"
    else:
        raise UsageError(f"A claim of kind {kind!r} is not known. Use ratio or less.")
    exponent = Decimal(claimed).as_tuple().exponent
    digits = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    # Half a unit of the last digit, and a hair for the binary fraction.
    agrees = abs(value - float(claimed)) <= 0.5 * 10**-digits * (1 + 1e-9)
    shown = f"{value:.{max(digits, 2)}f}"
    sentence = f"{what[:1].upper()}{what[1:]}: {formula} is {shown}"
    return Claim(
        what=what,
        claimed=claimed,
        value=value,
        agrees=agrees,
        sentence=f"{sentence}, as published." if agrees else f"{sentence}, not {claimed}.",
    )

"""What connects hosts, as users say it: 25Gbit, nvlink, 3GB/s,40us."""

from __future__ import annotations

import re

from farandole.errors import UsageError
from farandole.model.projection.records import LinkSpeed

# One way, of one host or (nvlink) one GPU; what a rate alone does not tell: InfiniBand is no
# Ethernet. Latencies are of one message through NCCL or Gloo, not of a ping.
_NAMED = {
    "infiniband": (200e9 / 8, 5e-6),
    "nvlink": (200e9, 5e-6),
}
# Up to so many bytes a second, however they are written: TCP on Ethernet takes tens of
# microseconds, the less the faster it is. Faster than 800 Gbit is between GPUs only.
_LATENCIES = ((20e9 / 8, 50e-6), (80e9 / 8, 30e-6), (800e9 / 8, 20e-6))
_FASTER_LATENCY_S = 5e-6
_PREFIXES = "kmgt"
_RATE = re.compile(r"([0-9]*\.?[0-9]+)\s*([kmgt])(bits?|i?b)(?:/s|ps)?", re.IGNORECASE)
_LATENCY = re.compile(r"([0-9]*\.?[0-9]+)\s*(ns|us|ms|s)", re.IGNORECASE)
_LATENCY_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_FORM = "Write 10Gbit, 25Gbit, 100Gbit, nvlink, or RATE[,LATENCY] as in 40Gbit,20us or 3GB/s."

# Beyond a link of 10 TB/s or a latency of a second, a unit was mistaken.
_FASTEST_BYTES_PER_S = 1e13
_SLOWEST_S = 1.0


def parse_link(text: str, *, flag: str = "--link") -> LinkSpeed:
    """Read a link's name, or its rate and latency.

    Raises:
        UsageError: It is neither; the message shows the form.
    """
    rate_text, comma, latency_text = (part.strip() for part in text.partition(","))
    named = _NAMED.get(rate_text.lower())
    if named is None:
        rate = _rate(rate_text, text, flag)
        latency = _usual_latency_s(rate)
    else:
        rate, latency = named
    if comma:
        latency = _latency(latency_text, text, flag)
    return LinkSpeed(name=text.strip(), bytes_per_s=rate, latency_s=latency)


def default_links() -> tuple[LinkSpeed, ...]:
    """Return the three that are shown when nobody said what connects the hosts."""
    return tuple(parse_link(name) for name in ("10Gbit", "25Gbit", "100Gbit"))


def _rate(text: str, whole: str, flag: str) -> float:
    match = _RATE.fullmatch(text)
    if match is None:
        raise UsageError(f"{flag} {whole} is no link. {_FORM}")
    number, prefix, unit = match.groups()
    power = _PREFIXES.index(prefix.lower()) + 1
    if unit.lower().startswith("bit") or (unit == "b" and prefix.isupper()):
        scale = 1000.0**power / 8
    elif unit.endswith("B"):
        scale = (1024.0 if unit.lower() == "ib" else 1000.0) ** power
    else:
        raise UsageError(f"{flag} {whole}: bits or bytes? {_FORM}")
    rate = float(number) * scale
    if not 0 < rate <= _FASTEST_BYTES_PER_S:
        raise UsageError(f"{flag} {whole}: no link moves {rate:.3g} bytes a second. {_FORM}")
    return rate


def _usual_latency_s(rate: float) -> float:
    return next((latency for limit, latency in _LATENCIES if rate <= limit), _FASTER_LATENCY_S)


def _latency(text: str, whole: str, flag: str) -> float:
    match = _LATENCY.fullmatch(text)
    if match is None:
        raise UsageError(f"{flag} {whole}: {text!r} is no latency. {_FORM}")
    latency = float(match[1]) * _LATENCY_S[match[2].lower()]
    if not 0 <= latency < _SLOWEST_S:
        raise UsageError(f"{flag} {whole}: no message takes {latency:g} s. {_FORM}")
    return latency

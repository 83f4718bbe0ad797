"""A number with its noun."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return "1 worker", "2 workers", "4 processes", "3 launches", "1,024 steps"."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{number:,} {noun}{ending}"

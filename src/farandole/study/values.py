"""Reading what a user writes: lists of numbers, factors, durations, sizes, shares."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from farandole.errors import UsageError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZES = "kmgt"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# More values than this in one list is a slip of the pen, not a study.
_MOST_VALUES = 1000


def counts(text: str, *, flag: str, auto: Sequence[int] = ()) -> tuple[int, ...]:
    """Read `1,2,4`, `1-4` or `auto` as numbers from 1 up, sorted, each once."""
    found: set[int] = set()
    for part in _parts(text, flag):
        if part.lower() == "auto" and auto:
            found |= set(auto)
            continue
        first, dash, last = part.partition("-")
        low, high = _whole(first), _whole(last if dash else first)
        if low is None or high is None or low < 1 or high < low:
            choice = " or auto" if auto else ""
            raise UsageError(f"{flag} {text}: give numbers from 1 up, as 1,2,4 or 1-4{choice}.")
        if high - low >= _MOST_VALUES:
            raise UsageError(f"{flag} {text}: {part} has more than {_MOST_VALUES} values.")
        found |= set(range(low, high + 1))
    return tuple(sorted(found))


def factors(given: Iterable[str] | Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Read `-L name=v1,v2` flags, or values by name; a name given twice has the values of both."""
    if isinstance(given, Mapping):
        return {name: tuple(map(str, listed(value))) for name, value in given.items()}
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(f"-L {text}: write a name and its values, as -L lr=0.1,0.2.")
        fresh = _parts(values, f"-L {name}")
        found[name] = tuple(dict.fromkeys([*found.get(name, ()), *fresh]))
    return found


def batches(values: Sequence[str], *, name: str) -> tuple[tuple[int, ...], bool]:
    """Read a batch factor's numbers, with `...` between them, and whether `max` is among them."""
    rest = [value for value in values if value.lower() != "max"]
    wants_max = len(rest) < len(values)
    if wants_max and name != "batch":
        raise UsageError(f"-L {name}=max: only `batch` can be max.")
    if wants_max and rest[-1:] == ["..."]:
        rest.pop()  # the search doubles by itself
    numbers: list[int] = []
    for place, value in enumerate(rest):
        if value == "...":
            last = _whole(rest[place + 1]) if place + 1 < len(rest) else None
            if len(numbers) < 2 or last is None:
                raise UsageError(
                    f"-L {name}={','.join(values)}: `...` needs two numbers before it and one "
                    "after it, as 32,64,...,256."
                )
            numbers += _between(numbers[-2], numbers[-1], last)
            continue
        number = _whole(value)
        if number is None or number < 1:
            more = ", or max." if name == "batch" else "."
            raise UsageError(f"-L {name}={value}: a batch is a whole number from 1 up{more}")
        numbers.append(number)
    return tuple(sorted(set(numbers))), wants_max


def seconds(text: str | float, *, flag: str) -> float:
    """Read a duration: 90, 90s, 20m, 1.5h, 1h30m."""
    plain = re.sub(r"\s", "", str(text).lower())
    parts = re.findall(r"(\d*\.?\d+)(min|[hms]?)", plain)
    total = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != plain or not 0 < total < math.inf:
        raise UsageError(f"{flag} {text}: give a time above 0, as 90s, 20m or 1h30m.")
    return total


def size(text: str | int, *, flag: str) -> int:
    """Read a number of bytes: 800M, 2G, 2GB, 1500000000."""
    match = re.fullmatch(r"(\d*\.?\d+)\s*([kmgt]?)(i?)b?", str(text).strip().lower())
    value = 0
    if match is not None:
        power = _SIZES.index(match[2]) + 1 if match[2] else 0
        value = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
    if value < 1:
        raise UsageError(f"{flag} {text}: give a size above 0, as 800M or 2G.")
    return value


def share(text: str | float, *, flag: str) -> float:
    """Read a share: 3%, 0.03."""
    plain = str(text).strip()
    try:
        value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise UsageError(f"{flag} {text}: give a share between 0 and 1, as 3% or 0.03.")
    return value


def count(text: str | int, *, flag: str, at_least: int = 1) -> int:
    """Read one whole number."""
    value = _whole(str(text))
    if value is None or value < at_least:
        raise UsageError(f"{flag} {text}: give a whole number from {at_least} up.")
    return value


def choice(text: Any, *, flag: str, choices: Sequence[str]) -> Any:
    """Return one of the choices."""
    if text not in choices:
        raise UsageError(f"{flag} {text}: choose from {', '.join(choices)}.")
    return text


def listed(value: Any, *, flag: str = "") -> tuple[Any, ...]:
    """Return values as a tuple; one value alone is a list of one."""
    alone = isinstance(value, str) or not isinstance(value, Iterable)
    return (value,) if alone else tuple(value)


def words(value: str | Sequence[str], *, flag: str) -> tuple[str, ...]:
    """Split a command as a shell does."""
    try:
        return tuple(shlex.split(value) if isinstance(value, str) else value)
    except ValueError as error:
        raise UsageError(f"{flag} {value}: {error}.") from error


def typed(text: str) -> int | float | str:
    """Return a factor's value as the number that it looks like, or as it is."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        # "1_000", "nan" and "inf" are Python's numbers, not JSON's.
        return value if math.isfinite(value) and "_" not in text else text
    return text


def _parts(text: str, flag: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UsageError(f"{flag} {text}: a value is missing. Write a list, as 1,2,4.")
    return parts


def _whole(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _between(first: int, second: int, last: int) -> list[int]:
    """Continue two numbers up to a last one: by their ratio when it is whole, else by steps."""
    found: list[int] = []
    step, whole_ratio = second - first, second % first == 0
    while step > 0 and len(found) < _MOST_VALUES:
        before = found[-1] if found else second
        fresh = before * (second // first) if whole_ratio else before + step
        if fresh >= last:
            break
        found.append(fresh)
    return found

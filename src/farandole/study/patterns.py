"""Figures read from what a script prints: `--throughput REGEX`, `--metric NAME=REGEX`.

For scripts in which nothing can be hooked. The workers' lines are fed as they come; what several
ranks print counts once: rank 0's, or that of the lowest rank that prints any.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from farandole.errors import UsageError
from farandole.study.records import Metric

THROUGHPUT = "throughput"
# Of the lines with a throughput the first one in three is warm-up and does not count.
_WARM_UP_SHARE = 3
_NAMED = re.compile(r"\s*([\w./ -]*[\w)])\s*=(.*)", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What launchers put before a line: mpirun and horovodrun, Farandole, torchrun, srun --label.
_TAG = re.compile(
    r"\[\d+,(\d+)\]<std(?:out|err)>:|\[(\d+)\]<std(?:out|err)>:"
    r"|\[(?:default|rank)(\d+)\]:|\s*(\d+): "
)
# A script that prints without ends of lines shall not keep a regular expression busy for minutes.
_LONGEST_LINE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What to look for in a line, and under which name to keep it."""

    name: str
    regex: re.Pattern[str]
    flag: str
    """What it was given by."""


def throughput_pattern(text: str) -> Pattern:
    """Check the value of --throughput: a regular expression with a group."""
    return _pattern(THROUGHPUT, text, "--throughput", f"--throughput {text!r}")


def metric_pattern(text: str) -> Pattern:
    """Check one value of --metric: NAME=REGEX, with a group."""
    match = _NAMED.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--metric {text!r} has no name. Write it as NAME=REGEX, "
            "for example --metric val_acc='acc ([0-9.]+)'."
        )
    return _pattern(match[1], match[2], f"--metric {match[1]}", f"--metric {text!r}")


def _pattern(name: str, text: str, flag: str, given: str) -> Pattern:
    try:
        regex = re.compile(text)
    except re.error as error:
        raise UsageError(f"{given} is not a regular expression: {error}.") from error
    if not regex.groups:
        raise UsageError(
            f"{given} has no group, so the number in it is unknown. "
            "Put parentheses around the number: 'img/sec: ([0-9.]+)'."
        )
    return Pattern(name=name, regex=regex, flag=flag)


class OutputReader:
    """Lines in, figures and metrics out."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        """Prepare to look for all of these in every line."""
        names = [pattern.name for pattern in patterns]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"Two patterns are called {name!r}. Give each its own name.")
        self._patterns = tuple(patterns)
        self._found: dict[str, list[Metric]] = {name: [] for name in names}
        self._unread: dict[str, str] = {}

    def feed(self, line: str, *, rank: int | None, time_s: float) -> None:
        """Look at one line, printed `time_s` after the launch began; its tag may name the rank."""
        if not self._patterns:
            return
        line = _COLOUR.sub("", line[:_LONGEST_LINE])
        if rank is None:
            rank, line = split_tag(line)
        for pattern in self._patterns:
            for match in pattern.regex.finditer(line):
                named = match.groupdict()
                text = named.get("value") or _first_group(match)
                value, step = _number(text), _number(named.get("step"))
                if value is None:
                    self._unread.setdefault(pattern.name, text or "")
                    continue
                metric = Metric(
                    name=pattern.name,
                    value=value,
                    step=None if step is None else int(step),
                    epoch=_number(named.get("epoch")),
                    time_s=time_s,
                    rank=rank,
                )
                self._found[pattern.name].append(metric)

    def metrics(self) -> tuple[Metric, ...]:
        """Return what --metric found, in the order in which it was printed."""
        names = [name for name in self._found if name != THROUGHPUT]
        found = [metric for name in names for metric in self._of_one_rank(name)]
        return tuple(sorted(found, key=lambda metric: metric.time_s or 0.0))

    def throughput(self) -> float | None:
        """Return the launch's throughput: the median after the first third of the lines."""
        values = [metric.value for metric in self._of_one_rank(THROUGHPUT)]
        values = [value for value in values if math.isfinite(value) and value > 0]
        return median(values[len(values) // _WARM_UP_SHARE :]) if values else None

    def notes(self) -> tuple[str, ...]:
        """Say what did not match, or matched something that is no number."""
        notes = []
        for pattern in self._patterns:
            if pattern.name in self._unread:
                unread = self._unread[pattern.name]
                notes.append(f"{pattern.flag} matched {unread!r}, which is not a number.")
            elif not self._found[pattern.name]:
                notes.append(f"{pattern.flag} matched no line of the output.")
        return tuple(notes)

    def _of_one_rank(self, name: str) -> list[Metric]:
        """Return what the lowest rank printed; lines of unknown ranks only where none is known."""
        found = self._found.get(name, [])
        lowest = min((one.rank for one in found if one.rank is not None), default=None)
        return [metric for metric in found if metric.rank == lowest]


def split_tag(line: str) -> tuple[int | None, str]:
    """Return the rank that a launcher's tag names, and the line without the tag."""
    match = _TAG.match(line)
    if match is None:
        return None, line
    return int(next(group for group in match.groups() if group)), line[match.end() :]


def _first_group(match: re.Match[str]) -> str | None:
    """Return the first group that took part: alternatives have one each."""
    named = {match.re.groupindex.get(name) for name in ("step", "epoch")}
    groups = (match[index] for index in range(1, match.re.groups + 1) if index not in named)
    return next((group for group in groups if group is not None), None)


def _number(text: str | None) -> float | None:
    """Read a number as scripts print it: 1,234.5 and 97.3% and nan."""
    text = (text or "").strip()
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    try:
        return float(text.removesuffix("%").rstrip(".,;:"))
    except ValueError:
        return None

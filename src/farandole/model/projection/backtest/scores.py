"""How right projections were where the truth is known: errors, bias, coverage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from farandole.model.projection.records import Projected

Kind = Literal["steps", "epochs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """One measured row that no fit had seen, and what was said of it."""

    group: str
    """The model or workload: each counts the same, however many rows it has."""
    key: str
    """What errors are listed by: the workers, or the ratio of batches."""
    measured: float
    projected: Projected
    baselines: Mapping[str, float] = field(default_factory=dict)
    """What simpler laws said."""
    label: str = ""
    """The row in words, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFigures:
    """Relative errors in percent: means over groups, the median over rows."""

    mean_abs_pct: float
    median_abs_pct: float
    bias_pct: float
    """Above 0: projections were too slow, or of too many epochs."""
    n: int
    """Rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScore:
    """What a backtest says of one file."""

    kind: Kind
    rows_fit: int
    rows_scored: int
    error: Mapping[str, ErrorFigures]
    coverage_90: float | None
    """Share of the scored rows inside of their intervals; None where none is scored."""
    baselines: Mapping[str, Mapping[str, ErrorFigures]]
    guesses: tuple[Guess, ...] = ()
    notes: tuple[str, ...] = ()
    two_smallest: FileScore | None = None
    """Of epochs: the same with fits to the two smallest batches only."""


def score(
    kind: Kind, guesses: Sequence[Guess], *, rows_fit: int, notes: Iterable[str] = ()
) -> FileScore:
    """Sum guesses up, by key."""
    names = dict.fromkeys(name for guess in guesses for name in guess.baselines)
    return FileScore(
        kind=kind,
        rows_fit=rows_fit,
        rows_scored=len(guesses),
        error=_by_key(guesses, lambda guess: guess.projected.value),
        coverage_90=fmean(map(covered, guesses)) if guesses else None,
        baselines={
            name: _by_key(
                [guess for guess in guesses if name in guess.baselines],
                lambda guess, name=name: guess.baselines[name],  # type: ignore[misc]
            )
            for name in names
        },
        guesses=tuple(guesses),
        notes=tuple(notes),
    )


def covered(guess: Guess) -> bool:
    """Tell whether the truth was inside of the interval."""
    return guess.projected.low <= guess.measured <= guess.projected.high


def log_width(projected: Projected) -> float:
    """Return how wide an interval is on the scale of ratios: 0.4 is about 20 % to each side."""
    return math.log(projected.high / projected.low)


def _by_key(guesses: Sequence[Guess], said: Callable[[Guess], float]) -> dict[str, ErrorFigures]:
    keys = sorted(dict.fromkeys(guess.key for guess in guesses), key=float)
    return {key: _figures([g for g in guesses if g.key == key], said) for key in keys}


def _figures(guesses: Sequence[Guess], said: Callable[[Guess], float]) -> ErrorFigures:
    groups: dict[str, list[float]] = {}
    for guess in guesses:
        error = 100 * (said(guess) / guess.measured - 1)
        groups.setdefault(guess.group, []).append(error)
    return ErrorFigures(
        mean_abs_pct=fmean(fmean(map(abs, errors)) for errors in groups.values()),
        median_abs_pct=median(abs(error) for errors in groups.values() for error in errors),
        bias_pct=fmean(map(fmean, groups.values())),
        n=len(guesses),
    )

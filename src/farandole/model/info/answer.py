"""The answer of a study: how many workers to use, and what that gains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from farandole.model.info.metric import AccuracyVerdict

Bound = Literal[
    "compute", "communication", "input", "straggler", "fixed_cost", "oversubscription", "unknown"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The one thing that a reader takes home."""

    workers: int | None
    """How many to use; None when no launch counts or the study is void."""
    baseline_workers: int | None
    """What the speedup refers to: 1, or the smallest count that was measured."""
    speedup: float | None
    """None when void or when there is nothing to compare."""
    interval: tuple[float, float] | None
    """95 % interval of the speedup; None with one launch on either side."""
    efficiency: float | None
    accuracy: AccuracyVerdict
    limited_by: Bound
    void: str | None
    """Why no speedup may be printed."""
    next: str
    """The command or change to try next; never empty."""
    headline: str
    """One sentence: "2 workers: 1.83x faster (1.79 to 1.87), same accuracy; ..."."""
    sentences: tuple[str, ...] = ()
    """What follows the headline: other groups, today, missing parts."""

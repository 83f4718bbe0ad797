"""How right projections of step times were on public clusters, and how wide intervals must be.

`track_record.json` is what `farandole backtest ... --write-track-record` wrote (docs/backtest.md);
nobody edits it. It has figures only, none of the measurements that they come from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

_FILE = "track_record.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What is known of projections that reach so far beyond what was measured."""

    beyond: float
    up_to: float
    """Times the largest measured number of workers."""
    rows: int
    models: int
    mean_abs_pct: float
    median_abs_pct: float
    p90_abs_pct: float
    bias_pct: float
    coverage_left_out: float
    """Of 90 % intervals whose factors came from the other models only."""
    fast: float
    slow: float
    """How many standard deviations an interval reaches to either side: for nine in ten rows of the
    model that was hit worst, here or nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRecord:
    """How right this tool was where the truth is known."""

    clusters: tuple[str, ...]
    models: tuple[str, ...]
    reaches: tuple[Reach, ...]
    """The nearest first."""

    def at(self, ratio: float) -> Reach:
        """Return what is known at so many times the measured size; the farthest beyond it."""
        return next((reach for reach in self.reaches if ratio <= reach.up_to), self.reaches[-1])

    def sentence(self, ratio: float) -> str:
        """Say how right projections were at this distance."""
        reach = self.at(ratio)
        where = f"{len(self.models)} models of {' and '.join(self.clusters)}"
        if ratio > reach.up_to:
            return (
                f"Nobody has checked projections to {ratio:.3g} times the measured size; up to "
                f"{reach.up_to:g} times they were {reach.mean_abs_pct:.0f} % off on average "
                f"({where})."
            )
        distance = f"{reach.beyond:g} to {reach.up_to:g} times"
        return (
            f"At {distance} the measured size, projections of step times were "
            f"{reach.mean_abs_pct:.0f} % off on average, nine in ten of them by less than "
            f"{reach.p90_abs_pct:.0f} % ({where})."
        )


@lru_cache(maxsize=1)
def track_record() -> TrackRecord:
    """Return the record that came with this version."""
    return parse(json.loads(files(__package__).joinpath(_FILE).read_text(encoding="utf-8")))


def parse(content: dict[str, object]) -> TrackRecord:
    """Return the record that a file's JSON object holds."""
    clusters, models, reaches = (content[key] for key in ("clusters", "models", "reaches"))
    assert isinstance(clusters, list)
    assert isinstance(models, list)
    assert isinstance(reaches, list)
    return TrackRecord(
        clusters=tuple(clusters),
        models=tuple(models),
        reaches=tuple(Reach(**reach) for reach in reaches),
    )

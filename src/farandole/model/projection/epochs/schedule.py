"""What the learning rate did in the course of runs: whether a point of a curve is an end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from farandole.recipes import DECAYS
from farandole.study.records import Launch

ScheduleKind = Literal["constant", "decaying", "unknown"]
# Weight decay and rounding do not make a schedule; a rate that falls to less than this does.
_FALLEN = 0.9
_NAMES = ("learning_rate", "lr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is known of the rate; a rate that only grows at first (warm-up) counts as constant."""

    kind: ScheduleKind
    detail: str
    """For a sentence: "the learning rate fell from 0.1 to 0.001"."""


def schedule_of(launches: Iterable[Launch]) -> Schedule:
    """Find out whether the rate of any of these runs decays.

    Rates that the recorder or the script told count more than a factor called `decay`. A launch
    that was ended early has seen the beginning of its schedule only, and does not count.
    """
    unknown = Schedule(kind="unknown", detail="no learning rate was recorded")
    found = [_of(launch) for launch in launches if launch.outcome == "ok"]
    for kind in ("decaying", "constant"):
        for one in found:
            if one is not None and one.kind == kind:
                return one
    return unknown


def _of(launch: Launch) -> Schedule | None:
    rates = _rates(launch)
    if rates:
        return judge_rates(rates)
    decay = dict(launch.cell.params).get("decay")
    if decay not in DECAYS:
        return None
    if decay == "constant":
        return Schedule(kind="constant", detail="the rate is constant (decay=constant)")
    return Schedule(kind="decaying", detail=f"the learning rate decays (decay={decay})")


def judge_rates(rates: Sequence[float]) -> Schedule:
    """Tell a decay from rates in the order of time."""
    largest, last = max(rates), rates[-1]
    if last < _FALLEN * largest:
        return Schedule(
            kind="decaying", detail=f"the learning rate fell from {largest:g} to {last:g}"
        )
    return Schedule(kind="constant", detail=f"the learning rate stayed at {last:g}")


def _rates(launch: Launch) -> list[float]:
    """Return the rates of one run: rank 0's, or the launch's own."""
    for rank in launch.ranks:
        if rank.learning_rates:
            return [rate for _, rate in rank.learning_rates]
    metrics = [*launch.metrics, *(m for rank in launch.ranks[:1] for m in rank.metrics)]
    for name in _NAMES:
        told = [
            metric.value
            for metric in metrics
            if metric.name.lower() == name and math.isfinite(metric.value)
        ]
        if len(told) > 1:
            return told
    return []

"""Fit a lab into a budget of time: its plan, limits of its studies, and further runs at the end."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.labs.lab import Asked, DataFacts, Lab, Plan, Planned, Rate
from farandole.labs.plan import STUDY_S
from farandole.study.plan import estimate, make_plan, pending
from farandole.study.progress import duration
from farandole.study.read import read_head
from farandole.study.records import Launch, Study
from farandole.study.runner import finished, preview
from farandole.study.spec import spec_from_json

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo

REPORT_S = 20.0
"""Kept for reading the studies and writing the report."""
MARGIN = 0.1
"""Share of the rest that is kept for what estimates miss."""
LEAST_LIMIT_S = 10.0
"""Of a study that comes when all is late: what one short launch takes."""
MOST_RUNS = 12
"""Of each setting. Beyond, a further run makes an interval narrower by less than a twentieth."""
_RUN_FLAGS = ("--seeds", "--repeats")
_GOOD = ("ok", "stopped")


def fit(
    lab: Lab, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], *, spent_s: float = 0.0
) -> Plan:
    """Return the lab's largest plan that fits into the rest of the budget.

    Raises:
        UsageError: Not even the smallest fits; the message has the least budget that would do.
    """
    assert asked.budget_s is not None
    room_s = _room_s(asked.budget_s, spent_s)
    for effort in reversed(range(lab.efforts)):
        plan = lab.plan(asked, data, rates, effort)
        if plan.estimate_s <= room_s:
            return plan
    # The loop ended with effort 0.
    raise _too_short(
        lab.name,
        asked.budget_s,
        least_s=plan.estimate_s / (1 - MARGIN) + REPORT_S + spent_s,
        why=f"its smallest useful studies take about {duration(plan.estimate_s)} on this machine, "
        f"beside {duration(spent_s + REPORT_S)} for measuring its speed and for the report",
    )


def check_pilot(lab: Lab, asked: Asked, data: DataFacts, pilots: Sequence[Planned]) -> None:
    """Refuse a budget that would be over before the lab's first study, without measuring.

    Raises:
        UsageError: With the least budget, by the lab's own guess of what one core does.
    """
    assert asked.budget_s is not None
    pilot_s = sum(pilot.estimate_s for pilot in pilots)
    if _room_s(asked.budget_s, pilot_s) <= 0:
        smallest_s = lab.plan(asked, data, {}, 0).estimate_s
        raise _too_short(
            lab.name,
            asked.budget_s,
            least_s=smallest_s / (1 - MARGIN) + REPORT_S + pilot_s,
            why=f"measuring this machine's speed and writing the report take about "
            f"{duration(pilot_s + REPORT_S)} of it",
        )


def limit_s(one: Planned, rest: Sequence[Planned], *, left_s: float) -> float:
    """Return the time limit of a study: its share of what is left of the budget, by the estimates.

    Args:
        one: The study that comes next.
        rest: All that are still to be made, that one among them.
        left_s: What is left of the budget.
    """
    whole = sum(other.estimate_s for other in rest)
    share = one.estimate_s / whole if whole > 0 else 1 / len(rest)
    return max(LEAST_LIMIT_S, (left_s - REPORT_S) * share)


def flag_time(seconds: float) -> str:
    """Write a time as flags take it: 15m, 90s."""
    whole = max(1, round(seconds))
    return f"{whole // 60}m" if whole % 60 == 0 else f"{whole}s"


def _room_s(budget_s: float, spent_s: float) -> float:
    return (budget_s - spent_s - REPORT_S) * (1 - MARGIN)


def _too_short(name: str, budget_s: float, *, least_s: float, why: str) -> UsageError:
    grain = 10 if least_s < 120 else 60
    least = math.ceil(least_s / grain) * grain
    return UsageError(
        f"--budget {flag_time(budget_s)} is too short for the lab {name}: {why}. Give at least "
        f"--budget {flag_time(least)}, or use --quick."
    )


# The pilot: how fast one worker trains, and what a launch needs around that.


def measured_rate(info: ScalingInfo, study: Study) -> Rate | None:
    """Return the rate of one worker; None when no launch of the study gives it.

    Args:
        info: The analysis of the study.
        study: Its records: `info` has no start-up time for launches that were ended early.
    """
    rows = [
        row
        for row in info.launches
        if row.cell.workers == 1
        and not row.cell.today
        and row.throughput is not None
        and row.unit == "samples/s"
    ]
    # On a machine that is never quiet no launch counts for a report. For an estimate it does: the
    # studies will run beside the same load.
    speeds = [row.throughput for row in rows if row.kept] or [row.throughput for row in rows]
    around = [
        seconds
        for launch in study.launches
        if launch.cell.workers == 1 and not launch.cell.today and launch.outcome in _GOOD
        if (seconds := _around_s(launch)) is not None
    ]
    if not speeds or not around:
        return None
    return Rate(samples_per_s=median(filter(None, speeds)), startup_s=median(around))


def _around_s(launch: Launch) -> float | None:
    """Return how long a launch took before its first step ended and after its last one did.

    Where no steps were recorded but figures printed, all of it: rather too much than too little.
    """
    ends = [rank.steps.end_s for rank in launch.ranks if len(rank.steps)]
    if launch.wall_s is None or not ends:
        return launch.wall_s
    first, last = min(float(end[0]) for end in ends), max(float(end[-1]) for end in ends)
    return max(0.0, launch.wall_s - (last - first))


# Further runs: what is left of a budget narrows the intervals.


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many runs a study has."""

    study: Planned
    runs: int
    """Of each setting, that have been made."""
    complete: bool
    """Whether that is all that it has been asked for."""
    next_s: float
    """What a further run of each setting takes, by the launches that have been made."""


def next_round(progress: Iterable[Progress], *, left_s: float) -> Progress | None:
    """Return the study to run once more; None when no further run is worth it or fits.

    Of those that fit, one with the fewest runs: its intervals are the widest. Ties go by the order
    of the plan, so that all get one before the first gets two.
    """
    fitting = [one for one in progress if one.runs < MOST_RUNS and one.next_s <= left_s - REPORT_S]
    return min(fitting, key=lambda one: one.runs, default=None)


def why_no_more(progress: Iterable[Progress]) -> str:
    """Say why no further run is made."""
    if any(one.runs < MOST_RUNS for one in progress):
        return "too short for a further run of a study"
    return "further runs would not make the intervals much narrower"


def study_progress(study: Planned, path: Path) -> Progress | None:
    """Look at how far a study is; None when there is nothing to add to it."""
    head = read_head(path)
    spec = spec_from_json(head.spec)
    if not Path(spec.folder).is_dir():
        return None  # its command cannot be given again
    runs = spec.seeds if spec.measure == "accuracy" else spec.repeats
    if head.complete:
        spec = replace(spec, seeds=spec.seeds + 1, repeats=spec.repeats + 1)
    done = finished(path)
    # As the study will see it: launches that failed are tried again.
    coming = pending(spec, make_plan(spec, preview(spec)), done, earlier=len(done))
    if not coming:
        return None
    if not head.complete:
        runs = min(one.repeat for one in coming)
        coming = [one for one in coming if one.repeat == runs]
    next_s = estimate(spec, coming, done).seconds + STUDY_S
    return Progress(study=study, runs=runs, complete=head.complete, next_s=next_s)


def with_runs(study: Planned, runs: int) -> Planned:
    """Return the study with so many runs of each setting."""
    pairs = itertools.pairwise(("", *study.flags))
    flags = tuple(str(runs) if before in _RUN_FLAGS else flag for before, flag in pairs)
    return replace(study, flags=flags)


def runs_planned(study: Planned) -> int:
    """Return how many runs of each setting a study is planned with."""
    given = dict(itertools.pairwise(study.flags))
    return next(int(given[flag]) for flag in _RUN_FLAGS if flag in given)


def runs_made(launches: Iterable[Launch]) -> int:
    """Return how often each setting was run to a good end; the fewest of those that ever were."""
    good = Counter(one.cell for one in launches if one.outcome in _GOOD)
    return min(good.values(), default=0)

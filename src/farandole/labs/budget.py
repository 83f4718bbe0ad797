"""Fit a lab into a budget of time: its plan, limits of its studies, and further runs at the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.format import listed
from farandole.labs.lab import Asked, Choice, DataFacts, Lab, Plan, Planned, Rate, flag_time
from farandole.labs.plan import STUDY_S
from farandole.study.plan import estimate, make_plan, pending, preview
from farandole.study.progress import duration
from farandole.study.read import read_head
from farandole.study.records import Launch, Study
from farandole.study.runner import finished
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
_GOOD = ("ok", "stopped")


def check_budget(lab: Lab, asked: Asked, data: DataFacts) -> None:
    """Refuse a budget in which not one study fits, before anything is measured.

    Raises:
        UsageError: With the least budget, by the lab's own guess of what one core does.
    """
    assert asked.budget_s is not None
    around_s = REPORT_S + sum(pilot.estimate_s for pilot in lab.pilot(asked))
    shortest_s = min(study.estimate_s for study in lab.plan(asked, data, {}, 0).studies)
    least_s = around_s + shortest_s / (1 - MARGIN)
    if asked.budget_s < least_s:
        grain = 10 if least_s < 120 else 60
        raise UsageError(
            f"--budget {flag_time(asked.budget_s)} is too short for the lab {lab.name}: its "
            f"shortest study takes about {duration(shortest_s)}, and measuring this machine's "
            f"speed and writing the report {duration(around_s)}. Give at least --budget "
            f"{flag_time(math.ceil(least_s / grain) * grain)}, or use --quick."
        )


def fit(
    lab: Lab, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], *, spent_s: float = 0.0
) -> Plan:
    """Return the lab's largest plan that fits into the rest of the budget.

    Of the smallest one those studies that fit, in the lab's order; at least the shortest.
    """
    assert asked.budget_s is not None
    room_s = (asked.budget_s - spent_s - REPORT_S) * (1 - MARGIN)
    for effort in reversed(range(lab.efforts)):
        plan = lab.plan(asked, data, rates, effort)
        if plan.estimate_s <= room_s:
            return plan
    chosen: list[Planned] = []
    for study in plan.studies:
        if study.estimate_s <= room_s - sum(one.estimate_s for one in chosen):
            chosen.append(study)
    chosen = chosen or [min(plan.studies, key=lambda study: study.estimate_s)]
    left_out = [study.title for study in plan.studies if study not in chosen]
    why = f"--budget {flag_time(asked.budget_s)} has no room for: {listed(left_out)}"
    here = f"{len(chosen)} of {len(plan.studies)}"
    choice = Choice(what="studies", lab="all", here=here, why=why)
    return Plan(studies=tuple(chosen), choices=(choice, *plan.choices))


def limit_s(one: Planned, rest: Sequence[Planned], *, left_s: float) -> float:
    """Return the time limit of the next study: its share of what is left, among the `rest`."""
    whole_s = sum(other.estimate_s for other in rest)
    share = one.estimate_s / whole_s if whole_s > 0 else 1 / len(rest)
    return max(LEAST_LIMIT_S, (left_s - REPORT_S) * share)


# The pilot: how fast one worker trains, and what a launch needs around that.


def measured_rate(info: ScalingInfo, study: Study) -> Rate | None:
    """Return the rate of one worker; None when no launch of the study gives it.

    The records are needed beside `info`, which has no start-up time for launches that were ended
    early.
    """
    rows = [row for row in info.launches if row.cell.workers == 1 and row.unit == "samples/s"]
    rows = [row for row in rows if row.throughput is not None and not row.cell.today]
    # On a machine that is never quiet no launch counts for a report. For an estimate it does: the
    # studies will run beside the same load.
    rows = [row for row in rows if row.kept] or rows
    ended = [one for one in study.launches if one.outcome in _GOOD and not one.cell.today]
    around = [_around_s(one) for one in ended if one.cell.workers == 1 and one.wall_s is not None]
    if not rows or not around:
        return None
    speed = median(row.throughput for row in rows if row.throughput is not None)
    return Rate(samples_per_s=speed, startup_s=median(around))


def _around_s(launch: Launch) -> float:
    """Return how long a launch took before its first step ended and after its last one did."""
    assert launch.wall_s is not None
    ends = [rank.steps.end_s for rank in launch.ranks if len(rank.steps)]
    if not ends:  # figures were printed, and no steps recorded: rather too much than too little
        return launch.wall_s
    return max(
        0.0, launch.wall_s - float(max(end[-1] for end in ends) - min(end[0] for end in ends))
    )


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
    too_short = any(one.runs < MOST_RUNS for one in progress)
    narrow = "further runs would not make the intervals much narrower"
    return "too short for a further run of a study" if too_short else narrow


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


def runs_made(launches: Iterable[Launch]) -> int:
    """Return how often each setting was run to a good end; the fewest of those that ever were."""
    good = Counter(one.cell for one in launches if one.outcome in _GOOD)
    return min(good.values(), default=0)

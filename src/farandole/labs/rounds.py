"""What is left of a budget goes into further runs of each study: which one comes next."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from farandole.labs.budget import REPORT_S
from farandole.labs.duration import STUDY_S
from farandole.labs.lab import Planned
from farandole.study.plan import estimate, make_plan, pending
from farandole.study.read import read_head
from farandole.study.records import Launch
from farandole.study.runner import finished, preview
from farandole.study.spec import spec_from_json

MOST_RUNS = 12
"""Of each setting. Beyond, a further run makes an interval narrower by less than a twentieth."""
_FLAGS = ("--seeds", "--repeats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a study is."""

    study: Planned
    runs: int
    """Of each setting, that have been made."""
    complete: bool
    """Whether that is all that it has been asked for."""
    next_s: float
    """What a further run of each setting takes, by the launches that have been made."""


def next_round(standings: Iterable[Standing], *, left_s: float) -> Standing | None:
    """Return the study to go on with; None when no further run is worth it or fits.

    Of those that fit, one with the fewest runs: its intervals are the widest. In the order of the
    plan where several have as few, so that all get one before the first gets two.

    Args:
        standings: In the order of the plan.
        left_s: Of the budget, the report not yet taken off.
    """
    fitting = [one for one in standings if one.runs < MOST_RUNS and one.next_s <= left_s - REPORT_S]
    return min(fitting, key=lambda one: one.runs, default=None)


def why_no_more(standings: Iterable[Standing]) -> str:
    """Say why no further run is made."""
    if any(one.runs < MOST_RUNS for one in standings):
        return "too short for a further run of a study"
    return "further runs would not make the intervals much narrower"


def standing(study: Planned, path: Path) -> Standing | None:
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
    return Standing(
        study=study,
        runs=runs,
        complete=head.complete,
        next_s=estimate(spec, coming, done).seconds + STUDY_S,
    )


def with_runs(study: Planned, runs: int) -> Planned:
    """Return the study with so many runs of each setting."""
    flags = list(study.flags)
    for place, flag in enumerate(study.flags[:-1]):
        if flag in _FLAGS:
            flags[place + 1] = str(runs)
    return replace(study, flags=tuple(flags))


def runs_planned(study: Planned) -> int:
    """Return how many runs of each setting a study is planned with."""
    given = dict(itertools.pairwise(study.flags))
    return next(int(given[flag]) for flag in _FLAGS if flag in given)


def runs_made(launches: Iterable[Launch]) -> int:
    """Return how often each setting was run to a good end; the fewest of those that ever were."""
    good = Counter(one.cell for one in launches if one.outcome in ("ok", "stopped"))
    return min(good.values(), default=0)

"""One job on all workers of a fleet, or several small ones at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farandole.model.measured import count
from farandole.model.projection import intervals, words
from farandole.model.projection.outlook import FleetOutlook, Goal, Outlook

_DAY_S = 86400.0


def job_sizes(fleet: int) -> list[int]:
    """Return how many workers each job of a fleet may have: halves of the whole, and one."""
    sizes = [fleet]
    while sizes[-1] % 2 == 0:
        sizes.append(sizes[-1] // 2)
    return sorted({1, *sizes})


def share_out(fleet: int, project: Callable[[int], Outlook]) -> tuple[FleetOutlook, ...]:
    """Return what a fleet does with jobs of every size, small ones first.

    Jobs that run at once are taken not to disturb each other.
    """
    found = []
    for size in job_sizes(fleet):
        one = project(size)
        if one.time_s is None:
            continue
        jobs = fleet // size
        found.append(
            FleetOutlook(
                workers=size,
                jobs=jobs,
                link=one.link,
                time_s=one.time_s,
                per_day=intervals.inverted(one.time_s, jobs * _DAY_S),
                cost=one.cost,
            )
        )
    return tuple(found)


def fleet_sentence(
    rows: Sequence[FleetOutlook], goal: Goal, usual: int, *, links_named: int = 1
) -> str:
    """Say what small jobs gain in number and lose in time against one on the whole fleet.

    Args:
        rows: what `share_out` gave.
        goal: what ends a job.
        usual: the job size to compare with: the largest that was measured.
        links_named: how many the user gave; unless it is one, the one that is taken is said.
    """
    return _compared(rows, goal, usual) + _link_words(rows[-1].link, links_named)


def _link_words(link: str | None, named: int) -> str:
    if link is None or named == 1:
        return ""
    if named:
        return f" Of the links that you named, {link} is taken."
    return (
        f" Nothing says what connects the hosts: {link} is taken for larger jobs; --link names "
        "yours."
    )


def _compared(rows: Sequence[FleetOutlook], goal: Goal, usual: int) -> str:
    whole = rows[-1]
    small = [row for row in rows[:-1] if row.workers <= max(usual, rows[0].workers)]
    if not small:
        return f"{_jobs(whole)} {goal.words}: {words.spoken(whole.time_s, words.time)}."
    other = small[-1]
    more = other.per_day.value / whole.per_day.value
    longer = other.time_s.value / whole.time_s.value
    hedge = ""
    if whole.time_s.indicative:
        hedge = " (indicative: that far from what was measured only bounds are known)"
    return (
        f"{_jobs(other)} finish {words.number(more)} times as many experiments a day as "
        f"{_jobs(whole)}, and each takes {words.number(longer)} times as long {goal.words}{hedge}."
    )


def _jobs(row: FleetOutlook) -> str:
    name = "one job" if row.jobs == 1 else f"{row.jobs} jobs"
    place = f" on {row.link}" if row.link else ""
    return f"{name} of {count(row.workers, 'worker')}{place}"

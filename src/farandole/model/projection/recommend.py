"""How many workers to use: by the knee, by a deadline, by a budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from farandole.model.measured import count
from farandole.model.projection import words
from farandole.model.projection.outlook import Goal, Outlook, Recommendation

KNEE = 0.5
"""What an added worker must bring of what one of the first brought."""


def recommend(
    counts: Sequence[Outlook],
    goal: Goal | None,
    *,
    deadline_s: float | None = None,
    budget: float | None = None,
) -> tuple[Recommendation, ...]:
    """Return one recommendation per rule: the knee, and what was asked for.

    Args:
        counts: of one link, measured and projected; passed over are indicative ones, and those
            without a time beside some that have one.
        goal: where times end.
        deadline_s: the goal is to be reached within.
        budget: the cost is to stay within.
    """
    sure = sorted((one for one in counts if not one.indicative), key=lambda one: one.workers)
    sure = [one for one in sure if one.time_s is not None] or sure
    if not sure:
        return ()
    link = next((one.link for one in reversed(sure) if one.link), None)
    found = [_knee(sure, goal, link)]
    if deadline_s is not None:
        found.append(_deadline(sure, deadline_s, goal, link))
    if budget is not None:
        found.append(_budget(sure, budget, goal, link))
    return tuple(found)


def marginal_gain(fewer: Outlook, more: Outlook, first: Outlook) -> float:
    """Return what an added worker brings, over what one of the first brought."""
    added = (_pace(more) - _pace(fewer)) / (more.workers - fewer.workers)
    return added / (_pace(first) / first.workers)


def _pace(one: Outlook) -> float:
    """Return the speed of getting to the goal; throughput where there is no goal."""
    return one.throughput.value if one.time_s is None else 1 / one.time_s.value


def _knee(sure: Sequence[Outlook], goal: Goal | None, link: str | None) -> Recommendation:
    chosen = sure[0]
    dropped: tuple[Outlook, float] | None = None
    last = 1.0
    for fewer, more in pairwise(sure):
        gain = marginal_gain(fewer, more, sure[0])
        if gain < KNEE:
            dropped = (more, gain)
            break
        chosen, last = more, gain
    use = count(chosen.workers, "worker")
    half = "half of what each of the first brought"
    if dropped is not None:
        more, gain = dropped
        brings = f"{gain:.0%} of it" if gain > 0 else "nothing"
        sentence = (
            f"{use} by the knee: up to there every added worker brings at least {half}; from "
            f"{chosen.workers} to {more.workers} it brings {brings}."
        )
    elif len(sure) == 1:
        sentence = f"{use}: there is no other count to compare with."
    else:
        sentence = (
            f"{use} by the knee: even the last ones added bring {last:.0%} of what each of the "
            "first brought (at least half is worth it), so that the knee lies beyond."
        )
    return Recommendation(rule="knee", workers=chosen.workers, link=link, sentence=sentence)


def _deadline(
    sure: Sequence[Outlook], deadline_s: float, goal: Goal | None, link: str | None
) -> Recommendation:
    within = [one for one in sure if one.time_s is not None and one.time_s.value <= deadline_s]
    limit, what = words.time(deadline_s), goal.words if goal else ""
    if sure[0].time_s is None:
        return _unknown("deadline", "time", what, link)
    if not within:
        soonest = min(sure, key=lambda one: one.time_s.value if one.time_s else 0.0)
        assert soonest.time_s is not None
        return Recommendation(
            rule="deadline",
            workers=None,
            link=link,
            sentence=f"No count takes {limit} or less {what}: the soonest is "
            f"{count(soonest.workers, 'worker')}, {words.spoken(soonest.time_s, words.time)}.",
        )
    chosen = min(within, key=lambda one: (one.cost.value if one.cost else 0.0, one.workers))
    assert chosen.time_s is not None
    why = "the cheapest" if chosen.cost else "the fewest workers"
    cost = f" for {words.number(chosen.cost.value)}" if chosen.cost else ""
    sure_words = (
        "" if chosen.time_s.high <= deadline_s else " Its interval reaches beyond: not certain."
    )
    return Recommendation(
        rule="deadline",
        workers=chosen.workers,
        link=link,
        sentence=f"{count(chosen.workers, 'worker')} for the deadline: {why} within "
        f"{limit} {what}, {words.spoken(chosen.time_s, words.time)}{cost}.{sure_words}",
    )


def _unknown(
    rule: Literal["deadline", "budget"], figure: str, what: str, link: str | None
) -> Recommendation:
    return Recommendation(
        rule=rule,
        workers=None,
        link=link,
        sentence=f"No {figure} {what} can be told here, so that nothing says who meets the {rule}.",
    )


def _budget(
    sure: Sequence[Outlook], budget: float, goal: Goal | None, link: str | None
) -> Recommendation:
    within = [one for one in sure if one.cost is not None and one.cost.value <= budget]
    what = goal.words if goal else ""
    if sure[0].cost is None:
        return _unknown("budget", "cost", what, link)
    if not within:
        least = min(sure, key=lambda one: one.cost.value if one.cost else 0.0)
        assert least.cost is not None
        return Recommendation(
            rule="budget",
            workers=None,
            link=link,
            sentence=f"No count costs {words.number(budget)} or less {what}: the cheapest is "
            f"{count(least.workers, 'worker')}, {words.spoken(least.cost)}.",
        )
    chosen = min(within, key=lambda one: one.time_s.value if one.time_s else 0.0)
    assert chosen.cost is not None
    assert chosen.time_s is not None
    doubt = "" if chosen.cost.high <= budget else " Its interval reaches beyond: not certain."
    return Recommendation(
        rule="budget",
        workers=chosen.workers,
        link=link,
        sentence=f"{count(chosen.workers, 'worker')} for the budget: the soonest {what} that "
        f"costs at most {words.number(budget)}, {words.spoken(chosen.cost)} and "
        f"{words.time(chosen.time_s.value)}.{doubt}",
    )

"""Fitting a lab's studies into the time that the user gives it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from farandole.errors import UsageError
from farandole.labs.lab import Asked, DataFacts, Lab, Plan, Planned, Rate
from farandole.study.progress import duration

REPORT_S = 20.0
"""Kept for reading the studies and writing the report."""
MARGIN = 0.1
"""Share of the rest that is kept for what estimates miss."""
LEAST_LIMIT_S = 10.0
"""Of a study that comes when all is late: what one short launch takes."""


def room_s(budget_s: float, *, spent_s: float) -> float:
    """Return how long studies may take that are begun after so much of a budget."""
    return (budget_s - spent_s - REPORT_S) * (1 - MARGIN)


def fit(
    lab: Lab, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], *, spent_s: float = 0.0
) -> Plan:
    """Return the lab's largest plan that fits into the rest of the budget.

    Args:
        lab: Whose plan.
        asked: Has the budget.
        data: What there is to train on.
        rates: What the pilot studies measured.
        spent_s: What has been used of the budget.

    Raises:
        UsageError: Not even the smallest fits; the message has the least budget that would do.
    """
    assert asked.budget_s is not None
    room = room_s(asked.budget_s, spent_s=spent_s)
    for effort in reversed(range(lab.efforts)):
        plan = lab.plan(asked, data, rates, effort)
        if plan.estimate_s <= room:
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
    if room_s(asked.budget_s, spent_s=pilot_s) <= 0:
        smallest_s = lab.plan(asked, data, {}, 0).estimate_s
        raise _too_short(
            lab.name,
            asked.budget_s,
            least_s=smallest_s / (1 - MARGIN) + REPORT_S + pilot_s,
            why=f"measuring this machine's speed and writing the report take about "
            f"{duration(pilot_s + REPORT_S)} of it",
        )


def limit_s(one: Planned, rest: Sequence[Planned], *, left_s: float) -> float:
    """Return the time limit of a study: its share of what is left, by the estimates.

    Args:
        one: The study that comes next.
        rest: All that are still to be made, that one among them.
        left_s: What is left of the budget.
    """
    whole = sum(other.estimate_s for other in rest)
    share = one.estimate_s / whole if whole > 0 else 1 / len(rest)
    return max(LEAST_LIMIT_S, (left_s - REPORT_S) * share)


def written(seconds: float) -> str:
    """Write a time as flags take it: 15m, 90s."""
    whole = max(1, round(seconds))
    return f"{whole // 60}m" if whole % 60 == 0 else f"{whole}s"


def _too_short(name: str, budget_s: float, *, least_s: float, why: str) -> UsageError:
    grain = 10 if least_s < 120 else 60
    least = math.ceil(least_s / grain) * grain
    return UsageError(
        f"--budget {written(budget_s)} is too short for the lab {name}: {why}. Give at least "
        f"--budget {written(least)}, or use --quick."
    )

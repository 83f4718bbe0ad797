"""Fitting a lab into a budget: by arithmetic alone."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.labs import budget
from farandole.labs.lab import DataFacts, Planned
from tests.labs.tiny import asked, tiny

DATA = DataFacts(source="none", train=1000, test=100, sample="nothing")
# Efforts 0 to 3 take 200, 400, 600 and 800 s.
LAB = tiny(seconds=100.0)


def needed(studies_s: float, spent_s: float = 0.0) -> float:
    """What a budget must be for these studies."""
    return studies_s / (1 - budget.MARGIN) + budget.REPORT_S + spent_s


@pytest.mark.parametrize(("fitting", "effort"), [(200, 0), (399, 0), (400, 1), (900, 3)])
def test_the_largest_plan_that_fits(fitting: float, effort: int) -> None:
    given = asked(size="budget", budget_s=needed(fitting) + 0.01)
    assert budget.fit(LAB, given, DATA, {}).choices[0].here == str(effort)


def test_what_was_spent_is_not_there_any_more() -> None:
    given = asked(size="budget", budget_s=needed(600, spent_s=50) + 0.01)
    assert budget.fit(LAB, given, DATA, {}, spent_s=50).estimate_s == 600
    assert budget.fit(LAB, given, DATA, {}, spent_s=60).estimate_s == 400


def test_a_budget_too_short_is_told_the_least_and_that_one_fits() -> None:
    given = asked(size="budget", budget_s=60.0)
    with pytest.raises(UsageError, match=r"--budget 1m is too short.*at least --budget 5m") as e:
        budget.fit(LAB, given, DATA, {}, spent_s=30)
    # 200 / 0.9 + 20 + 30 = 272 s: the next whole minute.
    assert "--quick" in str(e.value)
    enough = asked(size="budget", budget_s=300.0)
    assert budget.fit(LAB, enough, DATA, {}, spent_s=30).estimate_s == 200


def test_a_hopeless_budget_is_refused_before_the_pilot() -> None:
    pilots = LAB.pilot(asked())
    # 200 / 0.9 + 20, and 1 s for the pilot: the next whole minute, as after the pilot.
    least = r"--budget 5s is too short for the lab tiny: .*Give at least --budget 5m"
    with pytest.raises(UsageError, match=least):
        budget.check_pilot(LAB, asked(size="budget", budget_s=5.0), DATA, pilots)
    budget.check_pilot(LAB, asked(size="budget", budget_s=60.0), DATA, pilots)


def study(seconds: float) -> Planned:
    return Planned(name="s", title="", flags=(), script="", arguments=(), estimate_s=seconds)


def test_limits_share_out_what_is_left() -> None:
    rest = [study(10), study(30)]
    left_s = 200 + budget.REPORT_S
    assert budget.limit_s(rest[0], rest, left_s=left_s) == pytest.approx(50)
    assert budget.limit_s(rest[1], rest[1:], left_s=left_s) == pytest.approx(200)
    assert budget.limit_s(rest[1], rest[1:], left_s=-5) == budget.LEAST_LIMIT_S
    assert budget.limit_s(study(0), [study(0)], left_s=left_s) == pytest.approx(200)


@pytest.mark.parametrize(
    ("seconds", "text"), [(900, "15m"), (90, "90s"), (89.6, "90s"), (0.2, "1s"), (3600, "60m")]
)
def test_times_as_flags_take_them(seconds: float, text: str) -> None:
    assert budget.written(seconds) == text

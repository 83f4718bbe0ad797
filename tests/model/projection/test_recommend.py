"""How many workers to use, where the answer is known."""

from __future__ import annotations

from dataclasses import replace

from farandole.model.projection.outlook import Goal, Recommendation
from farandole.model.projection.recommend import recommend
from tests.model.projection.known import figure, outlook

GOAL = Goal(kind="epochs", words="for 10 epochs", epochs=10.0)


def by_rule(found: tuple[Recommendation, ...]) -> dict[str, Recommendation]:
    return {one.rule: one for one in found}


def test_the_knee_is_where_added_workers_bring_less_than_half() -> None:
    # Speeds 1, 1.8, 3.0, 3.8: the added workers bring 0.8, 0.6 and 0.2 each.
    counts = [outlook(n, 1000 / s) for n, s in ((1, 1.0), (2, 1.8), (4, 3.0), (8, 3.8))]
    (knee,) = recommend(counts, GOAL)
    assert knee.workers == 4
    assert "from 4 to 8 it brings 20 % of it" in knee.sentence.replace("20%", "20 %")


def test_a_knee_beyond_what_was_asked_for() -> None:
    counts = [outlook(n, 1000 / n) for n in (1, 2, 4, 8)]
    (knee,) = recommend(counts, GOAL)
    assert knee.workers == 8
    assert "the knee lies beyond" in knee.sentence


def test_more_workers_that_are_slower_bring_nothing() -> None:
    (knee,) = recommend([outlook(1, 100.0), outlook(2, 120.0)], GOAL)
    assert knee.workers == 1
    assert "brings nothing" in knee.sentence


def test_a_deadline_takes_the_cheapest_within() -> None:
    counts = [outlook(1, 1000.0, 1.0), outlook(4, 300.0, 1.2), outlook(8, 200.0, 1.6)]
    found = by_rule(recommend(counts, GOAL, deadline_s=310.0))["deadline"]
    assert found.workers == 4
    assert "the cheapest within 5.17 min for 10 epochs" in found.sentence
    assert "not certain" in found.sentence  # 330 s at the upper end
    sure = by_rule(recommend(counts, GOAL, deadline_s=340.0))["deadline"]
    assert "not certain" not in sure.sentence


def test_a_deadline_without_a_price_takes_the_fewest() -> None:
    counts = [outlook(1, 1000.0), outlook(4, 300.0), outlook(8, 200.0)]
    found = by_rule(recommend(counts, GOAL, deadline_s=400.0))["deadline"]
    assert found.workers == 4
    assert "the fewest workers" in found.sentence


def test_a_deadline_that_nobody_meets() -> None:
    counts = [outlook(1, 1000.0), outlook(8, 200.0)]
    found = by_rule(recommend(counts, GOAL, deadline_s=100.0))["deadline"]
    assert found.workers is None
    assert "the soonest is 8 workers, 3.33 min" in found.sentence


def test_a_budget_takes_the_soonest_within() -> None:
    counts = [outlook(1, 1000.0, 1.0), outlook(4, 300.0, 1.2), outlook(8, 200.0, 1.6)]
    found = by_rule(recommend(counts, GOAL, budget=1.25))["budget"]
    assert found.workers == 4
    none = by_rule(recommend(counts, GOAL, budget=0.5))["budget"]
    assert none.workers is None
    assert "the cheapest is 1 worker" in none.sentence


def test_what_is_indicative_is_not_recommended() -> None:
    counts = [
        outlook(1, 1000.0),
        outlook(2, 500.0),
        outlook(64, 16.0, throughput=figure(1 / 16, indicative=True)),
    ]
    found = by_rule(recommend(counts, GOAL, deadline_s=20.0))
    assert found["knee"].workers == 2
    assert found["deadline"].workers is None


def test_a_time_or_a_cost_that_is_indicative_is_not_recommended() -> None:
    near = [outlook(1, 1000.0, 1.0), outlook(2, 500.0, 1.0)]
    for name, far in (
        ("time_s", figure(16.0, indicative=True)),
        ("cost", figure(0.1, indicative=True)),
    ):
        # Few workers with a large batch: speed is known, epochs are not.
        counts = [*near, replace(outlook(4, 16.0, 0.1), **{name: far})]
        found = by_rule(recommend(counts, GOAL, deadline_s=20.0, budget=0.5))
        assert found["knee"].workers == 2
        assert found["deadline"].workers is None
        assert found["budget"].workers is None


def test_what_has_no_time_is_not_compared_with_what_has() -> None:
    blind = replace(outlook(64, 16.0), time_s=None)
    found = by_rule(
        recommend([outlook(1, 1000.0, 1.0), outlook(2, 500.0, 1.0), blind], GOAL, deadline_s=600.0)
    )
    assert found["knee"].workers == 2
    assert found["deadline"].workers == 2
    none = by_rule(recommend([blind], GOAL, deadline_s=600.0, budget=2.0))
    assert (none["deadline"].workers, none["budget"].workers) == (None, None)
    assert "No time for 10 epochs can be told" in none["deadline"].sentence
    assert "No cost for 10 epochs can be told" in none["budget"].sentence


def test_the_knee_is_the_first_count_after_which_workers_bring_too_little() -> None:
    # Speeds 1, 1.2, 3.2, 4.0: the added workers bring 0.2, 1.0 and 0.2 each.
    counts = [outlook(n, 1000 / s) for n, s in ((1, 1.0), (2, 1.2), (4, 3.2), (8, 4.0))]
    (knee,) = recommend(counts, GOAL)
    assert knee.workers == 1
    assert "from 1 to 2 it brings 20% of it" in knee.sentence

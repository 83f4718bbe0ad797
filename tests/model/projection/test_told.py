"""Headlines and sentences."""

from __future__ import annotations

from dataclasses import replace

from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection import told
from farandole.model.projection.offers import parse_offer
from farandole.model.projection.outlook import Goal, OfferOutlook, Outlook
from farandole.model.projection.recommend import recommend
from farandole.model.projection.rows import Basis, collect
from farandole.study.records import Cell
from tests.model.build import make_study, table_launch
from tests.model.projection.known import figure, outlook

GOAL = Goal(kind="target", words="to accuracy 0.9", metric="accuracy", value=0.9)


def basis(device: str = "gpu") -> Basis:
    study = make_study(
        table_launch(Cell(workers=n, batch=10, device=device), step_s=0.1, dataset_size=100)
        for n in (1, 2)
    )
    return collect(study, analyse(study), measure(study)[0])


def story(counts: list[Outlook], *asked: int, **changes: object) -> told.Story:
    rows = tuple(row for row in counts if row.measured or row.workers in asked)
    made = told.Story(
        basis=basis(),
        goal=GOAL,
        rows=rows,
        choices=tuple(counts),
        asked=asked,
        recommendations=recommend(counts, GOAL),
        recipe="recipe linear",
        unsaid_link=False,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def counts(*speeds: tuple[int, float]) -> list[Outlook]:
    return [outlook(n, 1000 / speed, measured=n == 1) for n, speed in speeds]


def test_one_count_that_was_asked_for() -> None:
    said = told.headline(story(counts((1, 1.0), (8, 5.0)), 8))
    assert said.startswith("8 workers: 3.33 min (3.03 min to 3.67 min) to accuracy 0.9")
    assert said.endswith("limited by computing.")


def test_of_several_the_recommended_one() -> None:
    found = counts((1, 1.0), (4, 3.8), (8, 7.0), (16, 8.0))
    assert told.headline(story(found, 4, 16)).startswith("8 workers: ")
    assert told.headline(story(found, 4, 8, 16)).startswith("8 workers: ")


def test_where_no_count_pays_that_is_said_first() -> None:
    said = told.headline(story(counts((1, 1.0), (4, 1.2), (8, 1.3)), 4, 8))
    assert said.startswith("More than 1 worker hardly pays: 16.7 min (15.2 min to 18.3 min)")
    assert "; 8 workers: 12.8 min" in said


def test_a_cost_and_a_link() -> None:
    row = outlook(8, 200.0, 4.0, link="25Gbit", limited_by="epochs")
    said = told.headline(story([outlook(1, 1000.0, measured=True), row], 8))
    assert said.startswith("8 workers on 25Gbit: ")
    assert "cost 4.00 (3.64 to 4.40)" in said
    assert "the epochs that a larger batch needs on top" in said


def test_without_a_goal_the_throughput_is_told() -> None:
    said = told.headline(story(counts((1, 1.0), (8, 5.0)), 8, goal=None))
    assert said.startswith("8 workers: 0.00500 (0.00455 to 0.00550) samples/s")


def test_sentences_name_recipe_links_and_cpus() -> None:
    made = story(counts((1, 1.0), (8, 5.0)), 8, basis=basis("cpu"), unsaid_link=True)
    said = " ".join(told.sentences(made))
    assert "recipe linear" in said
    assert "three usual links" in said
    assert "These are CPU runs" in said
    plain = story(counts((1, 1.0), (8, 5.0)), 8, goal=Goal(kind="epoch", words="for an epoch"))
    assert "needs no more epochs" in " ".join(told.sentences(plain))


def test_a_rule_is_said_once_for_all_links() -> None:
    slow = counts((1, 1.0), (8, 7.0), (16, 8.0))
    fast = counts((1, 1.0), (8, 7.9), (16, 15.0))
    found = []
    for link, rows in (("10Gbit", slow), ("25Gbit", slow), ("100Gbit", fast)):
        linked = [row if row.measured else replace(row, link=link) for row in rows]
        found += recommend(linked, GOAL)
    said = told.sentences(story(slow, 16, recommendations=tuple(found)))
    assert said[0].startswith("On 25Gbit: 8 workers by the knee")
    assert said[0].endswith("Elsewhere: 8 on 10Gbit, 16 on 100Gbit.")
    same = told.sentences(story(slow, 16, recommendations=tuple(found[:2])))
    assert "So on all" in same[0]


def offer(name: str, time_s: float, cost: float | None) -> OfferOutlook:
    text = parse_offer(f"{name}: 4").text
    return OfferOutlook(name=name, text=text, speed=1.0, outlook=outlook(4, time_s, cost))


def test_offers_in_words() -> None:
    both = told.offers_sentence((offer("A", 100.0, 4.0), offer("B", 50.0, 8.0)), GOAL)
    assert both.startswith("B is the soonest to accuracy 0.9: 50.0 s")
    assert both.endswith("2.00 times as long for 1/2.00 of the money.")
    best = told.offers_sentence((offer("A", 100.0, 4.0), offer("B", 50.0, 3.0)), GOAL)
    assert best.startswith("B is both the soonest to accuracy 0.9 and the cheapest")
    unpriced = told.offers_sentence((offer("A", 100.0, 4.0), offer("B", 50.0, None)), GOAL)
    assert unpriced.startswith("B is the soonest to accuracy 0.9: 50.0 s")
    assert told.offers_sentence((), GOAL) == ""
    timeless = replace(offer("C", 20.0, None), outlook=replace(outlook(4, 20.0), time_s=None))
    assert told.offers_sentence((offer("A", 100.0, 4.0), timeless), GOAL).startswith(
        "C is the fastest: 0.0500"
    )


def test_a_far_batch_has_bounds_as_well() -> None:
    # 4 workers are near, their batch is not.
    far = replace(outlook(4, 20.0), time_s=replace(figure(20.0, indicative=True), ratio=32.0))
    near = outlook(2, 500.0)
    said = told.headline(story([outlook(1, 1000.0, measured=True), far], 4))
    assert "32.0 times what was measured, so bounds only" in said
    both = told.headline(story([outlook(1, 1000.0, measured=True), near, far], 2, 4))
    assert both.startswith("2 workers: ")


def test_far_away_there_are_bounds() -> None:
    far = replace(
        outlook(64, 20.0),
        time_s=figure(20.0, indicative=True),
        throughput=figure(0.05, indicative=True),
    )
    said = told.headline(story([outlook(1, 1000.0, measured=True), far], 64))
    assert "(indicative)" in said
    assert "bounds only" in said

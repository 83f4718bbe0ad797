"""What plans decide alike."""

from __future__ import annotations

from farandole.labs import effort
from farandole.labs.lab import Choice
from tests.labs.trained import asked


def test_what_was_asked_for_comes_before_the_plans_own() -> None:
    assert effort.counts(asked(), (1, 2)) == (1, 2)
    assert effort.counts(asked(workers=(4, 1, 4)), (1, 2)) == (1, 4)


def test_the_plans_first_recipe_leads_where_it_is_among_those_asked_for() -> None:
    assert effort.recipes(asked(recipes=("fixed", "linear")), ("linear",)) == ("linear", "fixed")
    assert effort.recipes(asked(recipes=("warmup",)), ("linear", "fixed")) == ("warmup",)
    assert effort.recipes(asked(), ("linear", "fixed")) == ("linear", "fixed")


def test_all_samples_are_asked_for_by_zero() -> None:
    assert effort.subset(100, 1000) == 100
    assert effort.subset(1000, 1000) == effort.subset(0, 1000) == effort.subset(9999, 1000) == 0
    assert effort.taken(0, 1000) == effort.taken(9999, 1000) == 1000


def test_equal_choices_are_left_out() -> None:
    same = Choice(what="epochs", lab="10", here="10")
    other = Choice(what="batch", lab="32", here="16")
    assert effort.differing([same, other]) == (other,)


def test_runs_are_told_by_study_where_they_differ() -> None:
    assert effort.of_runs({"speedup": 1, "order": 1}).here == "1"
    assert effort.of_runs({"speedup": 3, "order": 3}).here == "3"
    told = effort.of_runs({"speedup": 5, "baseline": 4, "order": 4})
    assert (told.here, told.why) == (
        "4 (baseline and order), 5 (speedup)",
        "intervals need several",
    )


def test_only_counts_beyond_the_cores_are_named() -> None:
    assert effort.beyond((1, 2), 2) == ""
    assert effort.beyond((1, 2, 4, 8), 2).startswith("4 and 8 share 2 cores")

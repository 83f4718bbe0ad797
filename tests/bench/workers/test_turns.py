"""What recording costs, from steps whose times are known."""

from __future__ import annotations

import pytest

from farandole.bench.workers.turns import Turn, ratios


def recorded(time_s: float, pair: int | None = None, more: str = "") -> Turn:
    return Turn(time_s, recorded=True, pair=pair, more=more)


def bare(time_s: float, pair: int) -> Turn:
    return Turn(time_s, recorded=False, pair=pair)


def test_a_step_is_compared_with_its_neighbour_whichever_comes_first() -> None:
    turns = [recorded(3.0, 0), bare(2.0, 0), bare(4.0, 1), recorded(5.0, 1)]
    assert ratios(turns, {}) == [1.5, 1.25]


def test_what_steps_that_did_more_took_is_shared_out_over_all() -> None:
    # One step of eight takes 0.8 more: 0.1 for each.
    turns = [recorded(1.0, 0), bare(1.0, 0), recorded(1.8, more="noise"), recorded(1.0)]
    assert ratios(turns, {"noise": 8}) == pytest.approx([1.1])


def test_of_several_such_steps_one_that_was_disturbed_changes_little() -> None:
    turns = [recorded(1.0, 0), bare(1.0, 0)]
    turns += [recorded(time_s, more="noise") for time_s in (1.4, 1.4, 8.0)]
    assert ratios(turns, {"noise": 12}) == pytest.approx([1.1])


def test_kinds_of_more_are_told_apart() -> None:
    turns = [recorded(1.0, 0), bare(1.0, 0)]
    turns += [recorded(2.0, more="noise"), recorded(5.0, more="flush")]
    assert ratios(turns, {"noise": 10, "flush": 40}) == pytest.approx([1.2])


def test_a_step_that_did_more_is_no_measure_of_its_neighbour() -> None:
    turns = [recorded(9.0, 0, "flush"), bare(1.0, 0), recorded(3.0, 1), bare(2.0, 1)]
    assert ratios(turns, {}) == [1.5]

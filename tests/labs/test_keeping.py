"""Recipes compared, by launches of the mnist lab made by hand."""

from __future__ import annotations

import pytest

from farandole.labs import keeping
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist import KEEPING, LAB
from tests.labs.mnist_studies import LOST, found, studies
from tests.labs.trained import found_of, training_study


def answer_keeping(found: Found) -> Answered:
    return keeping.answer_keeping(found, KEEPING.asked)


def test_differences_are_paired_by_seeds() -> None:
    rows = {row[:2]: row for row in answer_keeping(found()).tables[0].rows}
    lost = rows["fixed", 4][7]
    # The seeds' luck is the same in all settings, so that nothing of it is left in a difference.
    assert (lost.value, lost.low, lost.high) == pytest.approx((-3 * LOST,) * 3)
    assert rows["warmup", 4][7].value == pytest.approx(0.0)
    assert rows["linear", 1][7].value == 0.0


def test_rates_and_epochs_are_those_of_the_recipes() -> None:
    rows = {row[:2]: row for row in answer_keeping(found()).tables[0].rows}
    assert rows["fixed", 4][3] == pytest.approx(0.001)
    assert rows["warmup", 4][3] == pytest.approx(0.004)
    assert rows["longer", 4][4] == 2 * rows["linear", 4][4]


def test_the_recipe_that_loses_is_not_the_one_recommended() -> None:
    first, rest, *_ = answer_keeping(found()).sentences
    assert first.startswith("On 4 workers, recipe linear")
    assert "fixed -3.00 points" in rest


def test_a_seed_that_diverged_is_counted() -> None:
    made = studies()
    nan = {"val_accuracy": lambda workers, recipe, seed: float("nan") if seed else 0.9}
    made["recipes"] = training_study((4,), ("warmup",), nan, batch=128)
    said = answer_keeping(found_of(LAB, made)).sentences
    assert any("1 of its seeds diverged" in sentence for sentence in said)


def test_one_recipe_alone_is_not_said_to_keep_most() -> None:
    made = {name: study for name, study in studies().items() if name != "recipes"}
    first = answer_keeping(found_of(LAB, made)).sentences[0]
    assert first.startswith("On 4 workers, recipe linear is compared with 1 worker (")

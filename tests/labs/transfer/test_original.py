"""The original's rate beside one that trains."""

from __future__ import annotations

import pytest

from farandole.labs.fruits.kind import KIND
from farandole.labs.transfer.original import answer_original
from tests.labs.trained import found_of
from tests.labs.transfer.build import LABS, LOST, end, found, studies


def test_what_the_rate_loses_is_paired_by_seeds() -> None:
    rows = {row[:2]: row for row in answer_original(found(), KIND).tables[0].rows}
    lost = rows["original", 2][6]
    # Seeds differ by 0.002 with one rate and by 0.001 with the other.
    expected = [end(2, "original", seed) - end(2, "linear", seed) for seed in (0, 1)]
    assert lost.value == pytest.approx(sum(expected) / 2)
    assert rows["linear", 2][6] is None
    assert rows["original", 2][7] == 2
    assert rows["linear", 2][7] == 0


def test_a_rate_that_does_not_train_is_said_to() -> None:
    said = answer_original(found(), KIND).sentences
    assert said[0].startswith("With the lab's rate (Adam, 0.1 x workers): at 0.1 x 1 = 0.1 ")
    assert any("1 and 2 workers end below 50 % of that" in sentence for sentence in said)


def test_a_rate_that_trains_is_not_blamed() -> None:
    made = studies()
    made["original"] = made["recipes"]
    said = answer_original(found_of(LABS["fruits"], made), KIND).sentences
    assert not any("does not train" in sentence for sentence in said)
    assert LOST > 0

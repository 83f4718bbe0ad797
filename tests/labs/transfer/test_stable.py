"""Epochs to stability by workers, and who gets there first."""

from __future__ import annotations

import pytest

from farandole.labs.caltech.kind import KIND as CALTECH
from farandole.labs.fruits.kind import KIND as FRUITS
from farandole.labs.transfer.stable import answer_soonest, answer_stable, stables
from tests.labs.trained import speed
from tests.labs.transfer.build import found


def test_epochs_are_those_that_were_trained_not_keras_numbers() -> None:
    rows = {(row.source, row.workers): row for row in stables(found(), FRUITS)}
    # An accuracy that rises for 2 + N epochs is at its end in that one, the first being 1.
    assert [rows["here", workers].epochs for workers in (1, 2, 4)] == [3, 4, 6]


def test_the_labs_epochs_by_eye_and_what_a_doubling_adds() -> None:
    answered = answer_stable(found("caltech"), CALTECH)
    assert "The lab, by eye: 15 on 2 T4, 19 on 4 T4, 20 on 4 V100 and 25 on 8 V100." in (
        answered.sentences
    )
    assert answered.sentences[-1].endswith("adds epochs there: 4 on T4 and 5 on V100.")
    series = {row[0] for row in answered.figures[0].table.rows}
    assert series == {"here, CPU", "the lab, T4", "the lab, V100"}


def test_fruits_names_no_epochs() -> None:
    assert answer_stable(found(), FRUITS).sentences[-1].startswith("The lab names no such epochs")


def test_the_soonest_here_and_in_the_lab() -> None:
    answered = answer_soonest(found("caltech"), CALTECH)
    rows = {row[0]: row for row in answered.tables[0].rows}
    # 25 x 44 s are less than 20 x 80, 19 x 81 and 15 x 209.
    assert rows["the lab, 8 V100"][3] == pytest.approx(1100)
    assert any(
        "In the lab 8 workers on V100 are stable soonest" in one for one in answered.sentences
    )
    # 3 epochs of 1000 samples at 100 a second; 4 of them at speed(2).
    assert rows["here, 1 CPU"][3] == pytest.approx(3 * 1024 / speed(1), rel=0.05)
    assert rows["here, 2 CPU"][3] == pytest.approx(4 * 1024 / speed(2), rel=0.05)
    assert rows["here, 4 CPU"][3] is None

"""Overfitting: the gap of both accuracies."""

from __future__ import annotations

import pytest

from farandole.labs.caltech.kind import KIND as CALTECH
from farandole.labs.fruits.kind import KIND as FRUITS
from farandole.labs.transfer.overfitting import answer_overfitting, fits
from tests.labs.transfer.build import GAP, found


def test_gaps_here_and_in_the_lab() -> None:
    gaps = {row.label: row.gap for row in fits(found("caltech"), CALTECH)}
    assert gaps["here, 1 CPU"] == pytest.approx(GAP)
    assert gaps["the lab, 2 T4"] == pytest.approx(0.8610 - 0.6888)
    assert gaps["the lab, 8 V100"] == pytest.approx(0.8636 - 0.6719)


def test_a_gap_of_eight_points_is_overfitting_and_the_labs_are_told() -> None:
    said = answer_overfitting(found("caltech"), CALTECH).sentences
    assert said[0].startswith("The network overfits here: training ends above validation by +8.00")
    assert "gaps of 17.22 to 19.18 points" in said[-1]


def test_fruits_has_no_training_accuracy_to_tell_from() -> None:
    answered = answer_overfitting(found(), FRUITS)
    assert answered.sentences[-1].startswith("The lab gives no training accuracy")
    lab = [row for row in answered.tables[0].rows if row[0].startswith("the lab")]
    assert {row[-1] for row in lab} == {"not known"}

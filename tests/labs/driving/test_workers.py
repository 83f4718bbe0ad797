"""Time and loss by workers."""

from __future__ import annotations

import pytest

from farandole.labs.driving.workers import answer_workers
from tests.labs.driving.build import CONSTANT, found, loss


def test_losses_stand_beside_that_of_a_constant() -> None:
    rows = {row[2:4]: row for row in answer_workers(found()).tables[0].rows if row[0] == "here"}
    mean = (loss(4, "linear", 0) + loss(4, "linear", 1)) / 2
    assert rows["linear", 4][6].value == pytest.approx(mean)
    assert rows["linear", 4][7] == CONSTANT
    assert rows["linear", 4][8] == pytest.approx(mean / CONSTANT)
    assert [rows["linear", count][5] for count in (1, 2, 4)] == [32, 16, 8]


def test_more_workers_than_cores_have_a_loss_and_no_time() -> None:
    answered = answer_workers(found())
    rows = {row[2:4]: row for row in answered.tables[0].rows if row[0] == "here"}
    assert rows["linear", 4][4] is None
    assert rows["linear", 2][4].value < rows["linear", 1][4].value
    assert any("4 workers share 2 cores" in said for said in answered.sentences)


def test_who_beats_the_constant_is_said() -> None:
    # 0.0205, 0.0805 and 0.1605 against 0.1.
    said = answer_workers(found()).sentences
    assert "The best constant gets 0.1, beaten by 1 and 2 workers." in said


def test_the_labs_rows_are_as_published() -> None:
    lab = [row for row in answer_workers(found()).tables[0].rows if row[0] == "the lab"]
    assert [(row[1], row[3], row[4].value / 60, row[6].value) for row in lab] == [
        ("GPU", 2, 8.0, 0.019),
        ("T4", 4, 7.5, 0.046),
        ("DGX", 4, 8.0, 0.047),
        ("DGX", 8, 8.5, 0.8),
    ]

"""Steps: the formula, whole steps, and the count."""

from __future__ import annotations

import pytest

from farandole.labs.mnist.steps import answer_steps, full_steps
from tests.labs.mnist.build import found


def test_counted_steps_are_whole_ones() -> None:
    table = answer_steps(found()).tables[0]
    rows = [row for row in table.rows if row[0] == "here"]
    # 3 epochs of 1000 samples at 128: 7.8 steps are 8, on 4 workers 1.95 are 2.
    assert {(row[1], row[8]) for row in rows if row[2] == "linear"} == {(1, 24), (2, 12), (4, 6)}
    assert {(row[1], row[8]) for row in rows if row[2] == "longer"} == {(2, 24), (4, 12)}
    assert all(row[7] == row[8] for row in rows)
    assert next(row[6] for row in rows if row[1] == 4) == pytest.approx(3 * 1000 / 512)


def test_the_labs_steps_on_two_nodes_are_those_of_six_workers() -> None:
    assert full_steps(40, 60_000, 128, 6) == 3120
    lab = [row for row in answer_steps(found()).tables[0].rows if row[0] == "the lab"]
    assert [row[6] for row in lab] == [18_750, 9_375, 4_687.5, 3_125]
    assert lab[-1][7:] == (3120, 3120)

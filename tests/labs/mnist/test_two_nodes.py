"""What two nodes change, by arithmetic, beside the lab's rows."""

from __future__ import annotations

import pytest

from farandole.labs.mnist.two_nodes import answer_two_nodes
from tests.labs.mnist.build import found


def test_size_counts_the_workers_of_all_nodes() -> None:
    rows = {row[:2]: row for row in answer_two_nodes(found()).tables[0].rows}
    one, two = rows[1, 4], rows[2, 4]
    assert (one[2], two[2]) == (4, 8)
    assert two[3] == 2 * one[3] == 1024
    assert two[4] == pytest.approx(one[4] / 2)
    assert two[6] == pytest.approx(0.008)


def test_the_labs_times_and_accuracies_stand_in_their_rows() -> None:
    rows = {row[:2]: row for row in answer_two_nodes(found()).tables[0].rows}
    assert rows[2, 3][7:9] == (152.0235, 0.9906)
    assert rows[2, 1][7:9] == (None, 0.9902)
    assert rows[2, 4][7:9] == (None, 0.9879)


def test_it_is_said_that_no_second_host_was_run() -> None:
    assert any(
        said.startswith("A lab runs on one host") for said in answer_two_nodes(found()).sentences
    )

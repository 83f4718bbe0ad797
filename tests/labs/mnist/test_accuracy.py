"""The best number of workers by accuracy."""

from __future__ import annotations

from farandole.labs.mnist.accuracy import answer_best
from tests.labs.mnist.build import found


def test_the_best_count_and_whether_the_test_set_can_tell() -> None:
    answered = answer_best(found())
    assert "0.9510" in answered.sentences[0]
    assert "less than" in answered.sentences[1]
    lab = [row for row in answered.tables[0].rows if row[0] == "the lab"]
    assert [(row[2], row[4].value) for row in lab] == [(2, 0.9902), (6, 0.9905), (8, 0.9879)]
    # 1.645 x sqrt(2 x 0.9905 x 0.0095 / 10,000) = 0.00226: 0.0003 is less, 0.0026 more.
    assert "6 and 2 GPUs (0.03 points apart) cannot be told apart" in answered.sentences[-1]
    assert "8 GPUs lack are clear" in answered.sentences[-1]

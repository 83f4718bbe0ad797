"""Time, speedup and accuracy by workers."""

from __future__ import annotations

import pytest

from farandole.labs.mnist.workers import answer_workers
from tests.labs.mnist.build import accuracy, found
from tests.labs.trained import speed


def test_speedup_is_that_of_training_and_the_job_gains_less() -> None:
    one, two, _ = (row for row in answer_workers(found()).tables[0].rows if row[0] == "here")
    assert two[5].value == pytest.approx(speed(2) / speed(1))
    assert two[6].value == pytest.approx(speed(2) / speed(1) / 2)
    assert two[3] == pytest.approx(one[2].value / two[2].value)
    assert 1 < two[3] < two[5].value


def test_more_workers_than_cores_have_an_accuracy_and_no_speed() -> None:
    answered = answer_workers(found())
    four = next(row for row in answered.tables[0].rows if row[:2] == ("here", 4))
    assert four[2:7] == (None,) * 5
    mean = sum(accuracy(4, "linear", seed) for seed in range(2)) / 2
    assert four[7].value == pytest.approx(mean)
    assert "void for speed" in four[9]
    assert any("4 workers share 2 cores" in said for said in answered.sentences)


def test_the_labs_speedups_are_quotients_of_its_times() -> None:
    lab = [row for row in answer_workers(found()).tables[0].rows if row[0] == "the lab"]
    assert [row[3] for row in lab] == pytest.approx(
        [1, 456.14687 / 379.69139, 456.14687 / 203.63445, 456.14687 / 152.0235]
    )

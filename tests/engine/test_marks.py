"""Marks between steps: how they travel, and what is said when they differ."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.engine.bucket_step import (
    BEGIN_EPOCH,
    END,
    END_EPOCH,
    MARK,
    Mark,
    check_marks,
    marks_of,
)
from farandole.engine.buckets import FULL, REPLAN
from farandole.errors import StepsDifferError


def test_a_mark_in_a_note_and_back() -> None:
    mark = Mark(END_EPOCH, 1 << 40)
    answers = [(MARK, mark.encode(16)), (FULL, np.full(24, 255, np.uint8))]
    assert marks_of(answers) == [mark, None]
    assert mark.encode(24).nbytes == 24


def test_nobody_gave_a_mark() -> None:
    note = np.zeros(16, np.uint8)
    assert marks_of([(FULL, note), (REPLAN, note), (0, note)]) is None


def test_marks_keep_a_bucket_from_being_reduced() -> None:
    assert MARK & 1


@pytest.mark.parametrize(
    "marks", [[(END, 3)] * 3, [Mark(BEGIN_EPOCH, 0), (BEGIN_EPOCH, 0)], [None, None]]
)
def test_all_at_the_same_point(marks: list[tuple[int, int] | None]) -> None:
    check_marks(marks)


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        (
            [None, (END_EPOCH, 4), None],
            "ranks 0, 2: in another training step; rank 1: at the end of the epoch, after 4",
        ),
        (
            [(END, 2), (BEGIN_EPOCH, 2)],
            "rank 0: done, after 2 epochs; rank 1: at the begin of epoch 2",
        ),
        ([(END_EPOCH, 4), (END_EPOCH, 5)], "rank 0: at the end .* 4 steps; rank 1: .* 5 steps"),
    ],
)
def test_different_points_are_named(marks: list[tuple[int, int] | None], words: str) -> None:
    with pytest.raises(StepsDifferError, match=words):
        check_marks(marks)

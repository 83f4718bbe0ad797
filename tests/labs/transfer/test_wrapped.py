"""A wrapped and an unwrapped optimizer, by bytes and fingerprints."""

from __future__ import annotations

import pytest

from farandole.labs.transfer.wrapped import answer_wrapped, same_batch
from tests.labs.trained import found_of
from tests.labs.transfer.build import LABS, LOST, found, studies, study


def test_both_stand_in_the_table() -> None:
    rows = {row[:2]: row for row in answer_wrapped(found()).tables[0].rows}
    # Ranks made by hand send 4,000 bytes in every step.
    assert rows["wrapped", 2][4:6] == (4000, 1)
    assert rows["not wrapped", 2][4:6] == (0, 2)
    assert rows["wrapped, sharing one worker's batch", 2][2] == rows["wrapped", 1][2] == 32


def test_the_study_of_unwrapped_workers_says_that_they_did_not_train_together() -> None:
    said = answer_wrapped(found()).sentences
    assert any("2 different sets of weights" in sentence for sentence in said)
    assert any("nothing was averaged" in sentence and "Wrap" in sentence for sentence in said)


def test_workers_that_were_wrapped_after_all_are_not_said_to_be_apart() -> None:
    made = studies()
    made["unwrapped"] = study((2,), ("fixed",), seeds=1)
    said = answer_wrapped(found_of(LABS["fruits"], made)).sentences
    assert not any("nothing was averaged" in sentence for sentence in said)


def test_two_workers_that_share_a_batch_lose_nothing() -> None:
    made = same_batch(found())
    assert made is not None
    _, _, gap = made
    assert gap.difference.value == pytest.approx(0.0)
    assert LOST > 0

"""Utilisation by batch: here by formula, the lab's as published."""

from __future__ import annotations

import pytest

from farandole.labs.mnist.utilisation import answer_utilisation
from tests.labs.mnist.build import BATCHES, found, step_s


def test_shares_and_throughput_by_batch() -> None:
    rows = [row for row in answer_utilisation(found()).tables[0].rows if row[0] == "here"]
    assert [row[2] for row in rows] == list(BATCHES)
    # 1.0, 1.4 and 1.8 cores of two.
    assert [row[3] for row in rows] == pytest.approx([0.5, 0.7, 0.9])
    assert [row[4].value for row in rows] == pytest.approx([b / step_s(b) for b in BATCHES])


def test_the_lab_stands_beside() -> None:
    rows = [row for row in answer_utilisation(found()).tables[0].rows if row[0] == "the lab"]
    assert [(row[2], row[3]) for row in rows] == [(128, 0.20), (1024, 0.54)]


def test_the_sentence_has_the_ends() -> None:
    said = answer_utilisation(found()).sentences[0]
    assert "rises" in said
    assert "50 % busy at batch 32 and 90 % at 512" in said

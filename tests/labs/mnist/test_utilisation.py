"""Utilisation by batch: here by formula, the lab's as published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.mnist.lab import LAB
from farandole.labs.mnist.utilisation import answer_utilisation
from farandole.study.records import Cell
from tests.labs.mnist.build import BATCHES, found, step_s
from tests.labs.trained import MACHINE, found_of
from tests.model.build import make_study, make_utilisation, timed_launch


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


def test_a_throughput_that_does_not_grow_is_not_explained_by_growth() -> None:
    # Nothing but images: the same at any batch.
    launches = [
        timed_launch(Cell(workers=1, threads=2, batch=batch), batch / 1000) for batch in BATCHES
    ]
    made = found_of(LAB, {"batch": make_study(launches, machine=MACHINE)})
    said = " ".join(answer_utilisation(made).sentences)
    assert "1.00x: these cores have enough to do with the smaller batch already." in said
    assert "is shared by its samples" not in said
    assert "is shared by its samples." in " ".join(answer_utilisation(found()).sentences)


def test_a_fall_by_single_launches_is_called_none() -> None:
    launches = []
    for place, batch in enumerate(BATCHES):
        launch = timed_launch(Cell(workers=1, threads=2, batch=batch), step_s(batch))
        used = make_utilisation([2.0 - 0.2 * place] * 4)
        launches.append(
            replace(launch, ranks=tuple(replace(rank, utilisation=used) for rank in launch.ranks))
        )
    made = found_of(LAB, {"batch": make_study(launches, machine=MACHINE)})
    assert answer_utilisation(made).sentences[0].startswith("Utilisation does not rise as the")

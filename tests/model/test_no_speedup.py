"""Answers without a speedup."""

from __future__ import annotations

from dataclasses import replace

from farandole.model.analyse import analyse
from farandole.model.info.answer import Answer
from farandole.study.records import Cell, Launch
from tests.model.build import make_launch, make_study, repeated, timed_launch, trained_launch

ONE, TWO = Cell(workers=1, batch=8, threads=1), Cell(workers=2, batch=8, threads=1)


def answer_of(launches: list[Launch]) -> Answer:
    return analyse(make_study(launches)).answer


def test_a_study_of_splits_is_answered_by_the_best_one() -> None:
    # Every split of 2 cores at 8 samples per worker: no curve, since threads differ.
    one = Cell(workers=1, batch=8, threads=2)
    found = answer_of(repeated(one, [0.1, 0.101, 0.099]) + repeated(TWO, [0.1, 0.101, 0.099]))
    assert found.workers == 2
    assert found.headline == (
        "2 processes x 1 thread is best: 160 samples/s, 2.00 times 1 x 2 (batch 8)."
    )
    assert found.next == "Use it: farandole run -np 2 --threads 1 ..."


def test_a_busy_cell_is_the_headline_before_one_that_failed() -> None:
    busy = timed_launch(ONE, 0.1, busy=True, foreign_share=0.8)
    large = make_launch(TWO, [], outcome="out_of_memory", reason="too large")
    assert answer_of([busy, large]).headline.startswith("No launch counts for speed: the machine")
    alone = answer_of([large])
    assert alone.headline == (
        "No launch counts: 1 cell, none with a figure (out of memory: too large)."
    )
    assert alone.next == "Use a smaller batch, or give each worker more memory (--memory)."


def test_a_busy_machine_does_not_hide_that_accuracy_was_measured() -> None:
    launches = [
        replace(trained_launch(cell, seed, [0.9, 0.98]), busy=True, foreign_share=0.8)
        for cell in (ONE, TWO)
        for seed in range(2)
    ]
    found = answer_of(launches)
    assert found.headline == (
        "No launch counts for speed: the machine was busy with other programs (they took up to 80% "
        "of the cores); accuracy was measured all the same."
    )
    # --resume makes only launches for speed again.
    assert found.next == "Run it again on a quiet machine, into a new folder."


def test_a_study_without_launches_is_gone_on_with() -> None:
    found = analyse(make_study([])).answer
    assert found.headline == "This study has no launches yet."
    assert found.next == (
        "Go on with it: farandole study --resume DIR, with a longer --time-limit if it had one."
    )

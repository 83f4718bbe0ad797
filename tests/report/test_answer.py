"""What is said beside the headline."""

from __future__ import annotations

from dataclasses import replace

from farandole.model.info.verdict import Void
from farandole.report import answer
from tests.report.builders import cell, label, study

TODAY = "Today, with one process and all cores: 1.21x slower."


def test_what_the_user_has_today_is_said_once() -> None:
    info = study()
    assert info.today is not None
    info = replace(info, today=replace(info.today, sentence=TODAY))
    assert answer.sentences(info) == (info.answer.sentences[0], TODAY)
    said = replace(info, answer=replace(info.answer, sentences=("first", TODAY)))
    assert answer.sentences(said) == ("first", TODAY)


def test_a_void_study_does_not_compare_with_today() -> None:
    info = study(void="Your 2 workers trained 2 separate models.")
    assert info.today is not None
    assert info.today.sentence not in answer.sentences(info)


def test_cells_that_are_void_beside_the_headline_come_first() -> None:
    one = cell(2)
    found = Void(
        kind="not_averaged",
        cell=one,
        label=label(one),
        launches=("0001",),
        sentence="Nothing was averaged.",
        mend="Wrap the optimizer.",
        evidence={"bytes": 0.0},
    )
    first, *others = answer.verdicts(replace(study(), voids=(found,)))
    assert (first.severity, first.action) == ("void", "Wrap the optimizer.")
    assert first.sentence == f"{label(one)}: Nothing was averaged."
    assert tuple(others) == study().verdicts
    named = study(void="Nothing was averaged. Wrap the optimizer.")
    assert answer.verdicts(replace(named, voids=(found,))) == named.verdicts

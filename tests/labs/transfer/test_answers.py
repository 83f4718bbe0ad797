"""All answers of the labs on transfer learning, from launches made by hand and from none at all."""

from __future__ import annotations

import pytest

from farandole.report.table import to_csv
from tests.labs.transfer.build import LABS, answered, found, nothing

BOTH = pytest.mark.parametrize("name", LABS)


@BOTH
def test_every_question_has_a_sentence_and_a_table_with_figures(name: str) -> None:
    assert [one.question for one in answered(name)] == list(LABS[name].questions)
    for one in answered(name):
        assert one.sentences, one.question.key
        assert one.tables[0].name == one.question.key
        assert one.tables[0].rows, one.question.key
        assert all(figure.spec for figure in one.figures), one.question.key
        for table in (*one.tables, *(figure.table for figure in one.figures)):
            assert len(to_csv(table).splitlines()) == len(table.rows) + 1


@BOTH
def test_one_seed_is_said_to_have_no_intervals(name: str) -> None:
    by_key = {one.question.key: one for one in answered(name, seeds=1)}
    for key in ("times", "accuracy", "keeping_accuracy", "original"):
        assert any("no intervals" in sentence for sentence in by_key[key].sentences), key


@BOTH
def test_without_studies_every_answer_says_what_is_missing(name: str) -> None:
    lab = LABS[name]
    assert [one.question for one in answered(name, seeds=0)] == list(lab.questions)
    assert all(one.sentences for one in answered(name, seeds=0))
    assert len(lab.corrections(nothing(name))) == len(lab.corrections(found(name)))

"""All answers of the mnist lab, from launches made by hand and from none at all."""

from __future__ import annotations

from farandole.labs.mnist.lab import LAB
from tests.labs.mnist.build import found, nothing


def test_every_question_has_a_sentence_and_a_table_with_figures() -> None:
    answered = LAB.answer(found())
    assert [one.question for one in answered] == list(LAB.questions)
    for one in answered:
        assert one.sentences, one.question.key
        assert one.tables[0].name == one.question.key
        assert one.tables[0].rows, one.question.key
        assert all(figure.spec for figure in one.figures), one.question.key


def test_one_seed_is_said_to_have_no_intervals() -> None:
    answered = {one.question.key: one for one in LAB.answer(found(seeds=1))}
    for key in ("utilisation", "workers", "keeping_accuracy"):
        assert any("no intervals" in sentence for sentence in answered[key].sentences), key


def test_without_studies_every_answer_says_what_is_missing() -> None:
    answered = LAB.answer(nothing())
    assert [one.question for one in answered] == list(LAB.questions)
    assert all(one.sentences for one in answered)
    assert len(LAB.corrections(nothing())) == len(LAB.corrections(found()))

"""All answers of the faces lab, from launches made by hand and from none at all."""

from __future__ import annotations

from farandole.labs.faces.lab import LAB
from tests.labs.faces.build import answers, disturbed, found, nothing


def test_every_question_has_a_sentence_and_a_table_with_figures() -> None:
    answered = answers().values()
    assert [one.question for one in answered] == list(LAB.questions)
    for one in answered:
        assert one.sentences, one.question.key
        assert one.tables[0].name == one.question.key
        assert one.tables[0].rows, one.question.key
        assert all(figure.spec for figure in one.figures), one.question.key


def test_one_launch_per_cell_is_said_to_have_no_intervals() -> None:
    answered = answers(repeats=1)
    for key in ("split", "batch", "weak", "strong", "accuracy"):
        assert any("no intervals" in sentence for sentence in answered[key].sentences), key


def test_without_studies_every_answer_says_what_is_missing() -> None:
    answered = answers(repeats=0).values()
    assert [one.question for one in answered] == list(LAB.questions)
    assert all(one.sentences for one in answered)
    # The published figures are there all the same.
    assert all(one.tables[0].rows for one in answered if one.question.key != "accuracy")
    assert len(LAB.corrections(nothing())) == len(LAB.corrections(found()))


def test_a_machine_that_was_never_quiet_has_no_speeds_and_is_said_to() -> None:
    answered = {one.question.key: one for one in LAB.answer(disturbed())}
    for key in ("split", "batch", "weak", "strong"):
        said = " ".join(answered[key].sentences)
        assert "Other programs took up to 80 %" in said, key
        assert all(row[0] != "here" for row in answered[key].tables[0].rows), key
    # Accuracy does not depend on how long it took.
    assert len(answered["accuracy"].tables[0].rows) == 2
    assert LAB.corrections(disturbed())

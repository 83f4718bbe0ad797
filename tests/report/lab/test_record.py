"""The record of a lab's report."""

from __future__ import annotations

from dataclasses import replace

from farandole.report.lab import missing_answers
from tests.report.lab.builders import lab


def test_a_question_without_a_table_is_missing() -> None:
    assert missing_answers(lab()) == ["enough"]


def test_a_table_without_rows_or_without_a_single_cell_is_missing() -> None:
    report = lab()
    first, second, third = report.answered
    table = first.tables[0]
    blank = replace(table, rows=tuple((None, "", None, None) for _ in table.rows))
    answered = (
        replace(first, tables=(replace(table, rows=()),)),
        replace(second, tables=(blank, table)),
        replace(third, tables=(table,)),
    )
    assert missing_answers(replace(report, answered=answered)) == ["speedup", "bytes"]


def test_the_headline_is_made_of_first_sentences() -> None:
    report = lab()
    assert report.headline == ("2 workers: 1.85x.", "Gradients: 44.7 MB.")
    assert replace(report, leading=("bytes", "enough", "unknown")).headline == (
        "Gradients: 44.7 MB.",
    )

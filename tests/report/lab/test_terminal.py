"""What a terminal shows at the end of a lab."""

from __future__ import annotations

from dataclasses import replace

from farandole.report.lab import terminal_lines
from tests.report.lab.builders import lab, oddly


def test_a_sentence_per_question_and_the_path() -> None:
    assert terminal_lines(lab(size_="quick"), "out/report.html") == [
        "Where the time goes (Lab tiny, quick: one repeat, no intervals, 2026-11-16 05:00 UTC)",
        "",
        "  speedup  2 workers: 1.85x.",
        "  bytes    Gradients: 44.7 MB.",
        "  enough   not answered",
        "",
        "The link was not measured.",
        "Not made: For lost",
        "",
        "report: out/report.html",
    ]


def test_a_note_on_a_study_is_enough() -> None:
    lines = terminal_lines(replace(lab(), notes=("The study For lost has no figures: it broke.",)))
    assert [line for line in lines if "For lost" in line] == [
        "The study For lost has no figures: it broke."
    ]


def test_a_budget_is_told_as_it_was_given() -> None:
    assert "planned to fit 15 minutes" in terminal_lines(lab())[0]


def test_control_characters_are_written_out() -> None:
    for line in terminal_lines(lab(lambda word: f"{word}\x1b[31m\n")):
        assert "\x1b" not in line
        assert "\n" not in line
    assert terminal_lines(lab(oddly(3)))

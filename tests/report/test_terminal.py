"""What a terminal shows at the end."""

from __future__ import annotations

from dataclasses import replace

from farandole.report.terminal import terminal_lines
from tests.report.builders import HEADLINE, bare, comparison, study


def test_the_sentence_a_table_the_path() -> None:
    lines = terminal_lines(study(), "DIR/report.html")
    assert lines[0] == HEADLINE
    table = [line.split() for line in lines if line.startswith("  ")]
    assert table[0] == ["workers", "batch", "samples/s", "speedup", "efficiency", "launches"]
    assert table[1][:3] == ["1", "64", "1,234"]
    assert table[2][6:10] == ["1.85x", "(1.81", "to", "1.89)"]
    assert lines[-1] == "report: DIR/report.html"
    assert "next: farandole project DIR -np 8" in lines


def test_a_void_study_shows_no_speedup() -> None:
    lines = terminal_lines(study(void="Your 2 workers trained 2 separate models."))
    assert lines[0] == "Your 2 workers trained 2 separate models."
    assert not [line for line in lines if "speedup" in line or "1.85" in line]


def test_one_launch_has_no_interval() -> None:
    lines = terminal_lines(bare())
    assert not [line for line in lines if " to " in line and line.startswith("  ")]


def test_escape_sequences_do_not_reach_the_terminal() -> None:
    info = study()
    answer = replace(info.answer, headline="\x1b[2Jgone", next="\x07")
    lines = terminal_lines(replace(info, answer=answer))
    assert lines[0] == "\\x1b[2Jgone"
    assert all(line.isprintable() for line in lines)


def test_many_sentences_are_cut() -> None:
    info = replace(study(), today=None)
    answer = replace(info.answer, sentences=tuple(f"curve {index}" for index in range(99)))
    lines = terminal_lines(replace(info, answer=answer))
    assert lines[4:6] == ["curve 3", "... and 95 more in the report."]
    assert "curve 98" not in lines


def test_studies_side_by_side() -> None:
    lines = terminal_lines(comparison())
    assert lines[:2] == [f"laptop: {HEADLINE}", f"cluster: {HEADLINE}"]
    assert "The machines differ" in lines[-1]


def test_an_unfinished_study_says_so() -> None:
    lines = terminal_lines(replace(study(), complete=False))
    assert any("--resume" in line for line in lines)

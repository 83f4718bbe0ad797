"""report.md of a lab."""

from __future__ import annotations

from dataclasses import replace

from farandole.labs.lab import DataFacts
from farandole.report.lab.contents import contents
from farandole.report.lab.markdown import document
from tests.report.lab.builders import lab


def test_questions_and_answers_in_order() -> None:
    lines = document(contents(lab()), picture="png").splitlines()
    assert lines[0] == "# Where the time goes"
    assert lines[4] == "**2 workers: 1.85x.**"
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == [
        "## What do more workers bring?",
        "## What crosses the network?",
        "## Would gradients do?",
        "## What the original got wrong",
        "## Lab / here",
        "## The lab's own figures",
        "## Not shown",
        "## Method",
        "## Machine",
        "## Data",
        "## Commands that reproduce it",
    ]
    assert any("figures/beside-tiny_speedup.png" in line for line in lines)
    assert "farandole lab tiny --quick" in lines
    assert "- 7.png: not an image" in lines


def test_a_quick_lab_says_so() -> None:
    text = document(contents(lab(size_="quick")), picture=None)
    assert "quick: one repeat, no intervals" in text.splitlines()[2]
    assert "![" not in text


def test_hostile_strings_make_no_markup_and_no_columns() -> None:
    evil = "<b>*x*</b>|`y`\n# z"
    report = lab(lambda word: f"{word}{evil}")
    text = document(contents(report), picture="png")
    outside = [line for line in text.splitlines() if not line.startswith("farandole ")]
    assert not [line for line in outside if "<b>" in line.replace(r"\<b\>", "")]
    assert not [line for line in outside if line.startswith("# z")]
    rows = [line for line in outside if line.startswith("| batch 32") and "1.85x" in line]
    assert rows
    assert {line.replace(r"\|", "").count("|") for line in rows} == {5}


def test_many_skipped_files_are_counted() -> None:
    data = DataFacts(
        source="x", train=1, test=1, sample="s", skipped=tuple(f"{n}.png: bad" for n in range(70))
    )
    text = document(contents(replace(lab(), data=data)), picture=None)
    assert "- 59.png: bad" in text
    assert "- 60.png: bad" not in text
    assert "and 10 more, in report.json" in text

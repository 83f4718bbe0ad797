"""report.md."""

from __future__ import annotations

from farandole.report.contents import contents
from farandole.report.markdown import document
from tests.report.builders import HEADLINE, Words, bare, comparison, study


def test_the_answer_comes_first_in_bold() -> None:
    lines = document(contents(study()), picture="png").splitlines()
    assert lines[0] == "# digits"
    assert lines[2] == f"**{HEADLINE}**"
    assert any(line.startswith("![") and "figures/scaling.png" in line for line in lines)
    assert "## Method" in lines


def test_what_workers_cost_each_other_follows_the_method() -> None:
    text = document(contents(study()), picture=None)
    method = text[text.index("## Method") : text.index("## Machine")]
    assert "| loaded, alone |" in method
    assert "| loaded, alone |" not in document(contents(bare()), picture=None)


def test_no_pictures_are_shown_that_were_not_drawn() -> None:
    assert "![" not in document(contents(study()), picture=None)


def test_hostile_names_make_no_markup_and_no_columns() -> None:
    words = Words(label="<b>*x*", param=("a|b", "c|d"), command=("```", "x"))
    text = document(contents(study(words=words)), picture="png")
    assert text.startswith(r"# \<b\>\*x\*")
    rows = [line for line in text.splitlines() if line.startswith("| 2 workers, batch 64, a")]
    assert len(rows) > 5
    assert all(line.startswith(r"| 2 workers, batch 64, a\|b=c\|d |") for line in rows)
    assert "````" in text


def test_a_bare_study_and_several() -> None:
    assert "## Not shown" in document(contents(bare()), picture="png")
    text = document(contents(comparison()), picture="png")
    assert "# laptop" in text
    assert "## Side by side" in text

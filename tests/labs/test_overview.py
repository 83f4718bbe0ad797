"""All labs on one page: what a lab found, what this machine found, and the verdict."""

from __future__ import annotations

from farandole.labs import questions
from farandole.labs.lab import Answered
from farandole.labs.overview import overview, split_findings, verdict
from farandole.labs.rows import HERE, LAB, Row, columns
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.render import markdown, page
from farandole.report.table import tabulate
from tests.labs.report_builders import lab

OPTIONS = {"x": "workers", "y": "speedup", "series": "source"}


def answered(theirs: tuple[float, float], *ours: Estimate, said: str = "Here it is.") -> Answered:
    """Return an answer with a figure of speedups on 1 and 4 workers."""
    there = [Estimate(value=value, low=None, high=None) for value in theirs]
    rows = [
        Row(source=source, workers=workers, speedup=figure)
        for source, figures in ((LAB, there), (HERE, ours))
        for workers, figure in zip((1, 4), figures, strict=False)
    ]
    table = tabulate("t", "T", rows, columns("source workers speedup"))
    spec = questions.lines("f", "F", "", "source workers speedup")
    question = questions.Question(key="q", text="How fast?", figures=(spec,))
    figure = lines("f", "F", "", table, **OPTIONS)
    return Answered(question=question, sentences=(said,), tables=(table,), figures=(figure,))


def near(value: float, width: float = 0.1) -> Estimate:
    return Estimate(value=value, low=value - width, high=value + width)


ONE = Estimate(value=1.0, low=1.0, high=1.0)
ONCE = Estimate(value=2.0, low=None, high=None)


def test_a_verdict_needs_intervals_and_a_change_beyond_them() -> None:
    assert verdict(answered((1.0, 3.0), ONE, near(1.8))) == "as in the lab: speedup rises"
    unlike = "unlike the lab: speedup falls, there it rises"
    assert verdict(answered((1.0, 3.0), ONE, near(0.5))) == unlike
    assert verdict(answered((1.0, 3.0), ONE, near(1.05))).startswith("cannot tell: the change is")
    assert verdict(answered((1.0, 3.0), ONE, ONCE)) == "cannot tell: one run per setting"
    assert verdict(answered((1.0, 3.0), ONE)) == "nothing to compare"


def test_what_the_lab_found() -> None:
    assert split_findings(answered((1.0, 3.0), ONE)) == ("Speedup: 1.00x to 3.00x", "Here it is.")
    both = answered((1.0, 3.0), ONE, said="1.80x here; the lab's jobs are 2.24x as fast.")
    assert split_findings(both) == ("The lab's jobs are 2.24x as fast.", "1.80x here")
    assert verdict(both, once=True) == "cannot tell: one run per setting"


def test_the_page_links_every_report_and_names_what_failed() -> None:
    found = overview({"tiny": lab(size_="quick")}, {"faces": "No study has figures."})
    text = markdown(found, picture=None)
    assert "1 lab ran to the end, with 3 questions." in text
    assert "faces did not: No study has figures." in text
    assert "### [Report of the lab tiny](tiny/report.html)" in text
    assert "| What do more workers bring? | not published | 2 workers: 1.85x. |" in text
    assert '<a href="tiny/report.html">Report of the lab tiny</a>' in page(found, scripts="")

"""What a terminal shows at the end of a lab: a sentence per question, and the path."""

from __future__ import annotations

from pathlib import Path

from farandole.report.escape import visible
from farandole.report.lab import words
from farandole.report.lab.record import LabReport


def terminal_lines(report: LabReport, page: str | Path | None = None) -> list[str]:
    """Return the title, one sentence per question and the report's path.

    Args:
        report: What was found.
        page: The page that was written, to be named in the last line.
    """
    lines = [visible(f"{report.title} ({words.subtitle(report)})"), ""]
    width = max((len(visible(one.question.key)) for one in report.answered), default=0)
    for one in report.answered:
        sentence = one.sentences[0] if one.sentences else "not answered"
        lines.append(f"  {visible(one.question.key).ljust(width)}  {visible(sentence)}")
    lost = words.missing(report, ())
    if lost:
        lines += ["", *(visible(sentence) for sentence in lost)]
    if page is not None:
        lines += ["", f"report: {visible(page)}"]
    return lines

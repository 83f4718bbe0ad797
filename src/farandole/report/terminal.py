"""What a terminal shows at the end: the answer, a table, the path."""

from __future__ import annotations

from pathlib import Path

from farandole.model.info.comparison import Comparison
from farandole.model.info.scaling import ScalingInfo
from farandole.report import answer, tables
from farandole.report.escape import visible
from farandole.report.series import studies
from farandole.report.table import to_lines

_MOST_SENTENCES = 4
_MOST_VERDICTS = 3


def terminal_lines(found: ScalingInfo | Comparison, report: str | Path | None = None) -> list[str]:
    """Return the answer's sentence, a table, the weightiest verdicts and the report's path.

    Args:
        found: One study, or several side by side.
        report: The page that was written, to be named in the last line.
    """
    lines: list[str] = []
    if isinstance(found, Comparison):
        lines += [visible(f"{info.label}: {info.answer.headline}") for info in studies(found)]
        lines += ["", *to_lines(tables.comparison_rows(found))]
        if found.refused:
            lines += ["", visible(found.refused)]
    else:
        lines += _one(found)
    if report is not None:
        lines += ["", f"report: {visible(report)}"]
    return lines


def _one(info: ScalingInfo) -> list[str]:
    headline = info.answer.headline
    told = [visible(sentence) for sentence in answer.sentences(info)]
    lines = [visible(headline), *told[:_MOST_SENTENCES]]
    if len(told) > _MOST_SENTENCES:
        lines.append(f"... and {len(told) - _MOST_SENTENCES} more in the report.")
    table = tables.answer_curve(info)
    if table is not None:
        lines += ["", *to_lines(table)]
    pressing = [
        verdict for verdict in answer.verdicts(info) if verdict.severity in ("void", "warn")
    ]
    # The headline has said why a void study is void.
    news = [v for v in pressing if v.sentence not in headline][:_MOST_VERDICTS]
    if news:
        lines += ["", *(visible(f"{v.sentence} {v.action}".rstrip()) for v in news)]
    if not info.complete:
        lines += ["", "The study is not complete: farandole study --resume DIR goes on with it."]
    return [*lines, "", f"next: {visible(info.answer.next)}"]

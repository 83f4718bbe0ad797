"""All labs on one page: every question, what the lab found, what this machine found, a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from farandole.format import NOT_PUBLISHED, plural
from farandole.labs.lab import Answered
from farandole.labs.questions import drawn
from farandole.labs.report import LabReport
from farandole.labs.rows import HERE, LAB, Row, text
from farandole.model.statistics import Estimate
from farandole.report import words
from farandole.report.document import Document, Heading, Opening, Prose, Section, Tables
from farandole.report.table import Column, tabulate

_OF_THE_LAB = re.compile(r"\b(?:lab|original)(?:'s)?\b", re.IGNORECASE)
_BEFORE_LAB = re.compile(r"; (?=the lab's )")
_COLUMNS = (
    text("question", "question"),
    text("lab", "the lab found"),
    text("here", "this machine found"),
    text("verdict", "verdict"),
)
_SAME = 0.02
"""Changes smaller than this share of a figure are none."""


def overview(reports: Mapping[str, LabReport], failed: Mapping[str, str]) -> Document:
    """Return the page.

    Args:
        reports: Those of the labs that ran, by name; each lies in a folder of this name.
        failed: By name of a lab that did not run to its end: why.
    """
    machine = next((report.machine for report in reports.values()), {})
    asked = sum(len(report.answered) for report in reports.values())
    done = f"{plural(len(reports), 'lab')} ran to the end, with {plural(asked, 'question')}."
    lost = [f"{name} did not: {why.rstrip('.')}." for name, why in failed.items()]
    flags = [f"{name}: {report.busy}" for name, report in reports.items() if report.busy]
    opening = Opening(
        label="All labs",
        note=", ".join(words.machine_parts(machine)),
        headline="What the labs found, and what this machine found",
        sentences=(done, *lost, *flags),
    )
    sections = [_section(name, report) for name, report in reports.items()]
    sections += [
        Section(key=name, title=name, link=name, blocks=(Prose((f"No report: {why}",)),))
        for name, why in failed.items()
    ]
    return Document(title="All labs", openings=(opening,), sections=tuple(sections))


def _section(name: str, report: LabReport) -> Section:
    once, rows = report.found.asked.size == "quick", []
    for one in report.answered:
        lab, here = split_findings(one, report.lab.lab_found.get(one.question.key, ""))
        found = verdict(one, once=once)
        rows.append(Row(question=one.question.text, lab=lab, here=here, verdict=found))
    table = tabulate(f"overview-{name}", report.lab.title, rows, _COLUMNS)
    heading = Heading(f"Report of the lab {name}", f"{name}/report.html")
    blocks = (Prose((report.subtitle,)), Tables((table,), wordy=True), heading)
    return Section(key=name, title=report.lab.title, link=name, blocks=blocks)


def split_findings(answered: Answered, said: str = "") -> tuple[str, str]:
    """Return what the lab found and what this machine found, out of the sentences of an answer.

    Args:
        answered: With sentences about both; where none is about the lab, its figures' range counts.
        said: What the lab found, where the answer does not say it: then it begins with this
            machine's finding.
    """
    parts = [part for one in answered.sentences for part in _BEFORE_LAB.split(one)]
    about = [part for part in parts if _OF_THE_LAB.search(part)]
    here = [part for part in parts if said or part not in about] or about or ["not answered"]
    about = [said] if said else about
    ends = _ends(answered, LAB)
    if not about and ends is not None:
        column, first, last = ends
        low, high = (column.show(_value(one)) for one in (first, last))
        about = [f"{column.title}: {low} to {high}"]
    lab, ours = (f"{one[0].upper()}{one[1:]}" for one in ((about or [NOT_PUBLISHED])[0], here[0]))
    return (lab if about else NOT_PUBLISHED), ours


def verdict(answered: Answered, *, once: bool = False) -> str:
    """Say whether this machine's figures go the way of the lab's, where they can tell.

    Args:
        answered: With a figure or a table of both.
        once: Whether every setting was run once.
    """
    theirs, ours = _ends(answered, LAB), _ends(answered, HERE)
    if once and (theirs or split_findings(answered)[0] != NOT_PUBLISHED):
        return "cannot tell: one run per setting"
    if theirs is None or ours is None:
        return "nothing to compare"
    column, first, last = ours
    widths = [_half_width(one) for one in (first, last)]
    if None in widths:
        return "cannot tell: one run per setting"
    change = _value(last) - _value(first)
    if abs(change) <= math.hypot(*(width for width in widths if width is not None)):
        return "cannot tell: the change is within the intervals; more runs would narrow them"
    there, here = (_way(_value(end[1]), _value(end[2])) for end in (theirs, ours))
    if there == here:
        return f"as in the lab: {column.title} {here}"
    return f"unlike the lab: {column.title} {here}, there it {there}"


def _ends(answered: Answered, source: str) -> tuple[Column, Any, Any] | None:
    """Return what a question's figure shows of a source at the least and at the most of x."""
    found = drawn(answered, source)
    if found is None or len({x for x, _ in found[1]}) < 2:
        return None
    column, cells = found
    return column, cells[0][1], cells[-1][1]


def _value(cell: Any) -> float:
    return float(cell.value if isinstance(cell, Estimate) else cell)


def _half_width(cell: Any) -> float | None:
    """Return half of an interval; None without one. A ratio of 1 by definition has none to show."""
    if not isinstance(cell, Estimate) or cell.low is None or cell.high is None:
        return 0.0 if _value(cell) == 1.0 else None
    return (cell.high - cell.low) / 2


def _way(first: float, last: float) -> str:
    change = last - first
    if abs(change) <= _SAME * max(abs(first), abs(last)):
        return "stays the same"
    return "rises" if change > 0 else "falls"


def terminal_lines(
    reports: Mapping[str, LabReport], failed: Mapping[str, str], page: str
) -> Sequence[str]:
    """Return a line per lab, and the page's path."""
    lines = [f"  {name}: {len(one.answered)} questions answered" for name, one in reports.items()]
    lines += [f"  {name}: failed ({why.rstrip('.')})" for name, why in failed.items()]
    return ["", *lines, "", f"overview: {page}"]

"""Sentences that the page and the Markdown of a lab share."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from farandole.labs.lab import DataFacts
from farandole.report import reproduce
from farandole.report.lab.record import LabReport
from farandole.report.text import moment, plural, seconds

QUICK = "Quick: one repeat, no intervals. What is said of differences may be chance."
_SIZES = {
    "quick": "quick: one repeat, no intervals",
    "budget": "in the time given",
    "full": "the lab's literal protocol",
}


def subtitle(report: LabReport) -> str:
    """Return which lab this is, at which size and when."""
    size = _SIZES[report.asked.size]
    if report.asked.size == "budget" and report.asked.budget_s is not None:
        size = f"planned to fit {_time(report.asked.budget_s)}"
    return ", ".join(part for part in (f"Lab {report.name}", size, moment(report.created)) if part)


def is_quick(report: LabReport) -> bool:
    """Say whether the figures have no intervals."""
    return report.asked.size == "quick"


def data_rows(data: DataFacts) -> list[tuple[str, str]]:
    """Return what the data are as pairs of words."""
    skipped = f"{len(data.skipped):,} files" if len(data.skipped) != 1 else "1 file"
    return [
        ("source", data.source),
        ("training samples", f"{data.train:,}"),
        ("test samples", f"{data.test:,}"),
        ("one sample", data.sample),
        ("skipped", skipped if data.skipped else "nothing"),
    ]


def machine(report: LabReport) -> Mapping[str, object]:
    """Return what the lab ran on: its studies were made one after the other on one machine."""
    return next((info.machine for info in report.studies.values()), {})


def title_of(report: LabReport, study: str) -> str:
    """Return what a study is for."""
    planned = {one.name: one.title for one in report.plan.studies}
    return planned.get(study, study)


def commands(report: LabReport) -> list[str]:
    """Return the command that reproduces the lab."""
    return [shlex.join(report.command or ("farandole", "lab", report.name))]


def study_commands(report: LabReport) -> dict[str, list[str]]:
    """Return, by study, the command that makes it alone; no report of its own is needed.

    Without a limit of time: what a study was given is what the lab had left.
    """
    unlimited = {
        name: replace(info, spec={**info.spec, "time_limit_s": None})
        for name, info in report.studies.items()
    }
    environs = {one.name: one.environ for one in report.plan.studies}
    return {
        name: [_with(environs.get(name, ()), line) for line in reproduce.commands(info)[:1]]
        for name, info in unlimited.items()
    }


def missing(report: LabReport, undrawn: tuple[str, ...]) -> list[str]:
    """Return what is not shown, in sentences."""
    made = set(report.studies)
    lost = [one.title for one in report.plan.studies if one.name not in made]
    # A note says why, which is better.
    lost = [title for title in lost if not any(title in note for note in report.notes)]
    return [
        *report.notes,
        *(f"Not made: {title}" for title in lost),
        *(f"Nothing to draw: {title}" for title in undrawn),
    ]


def _with(environ: tuple[tuple[str, str], ...], line: str) -> str:
    """Return a command with the variables that its script needs before it."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environ), line])


def _time(given_s: float) -> str:
    """Return a budget as people give it: "15 minutes"."""
    minutes = given_s / 60
    return plural(int(minutes), "minute") if minutes.is_integer() else seconds(given_s)

"""The report of a lab without whose it is: no host, user, path, address or commit."""

from __future__ import annotations

from dataclasses import replace

from farandole.report.anonymous import Scrub, anonymous_study, scrubbed, secrets_of
from farandole.report.lab.record import LabReport


def anonymous(report: LabReport) -> LabReport:
    """Return the same answers and figures without names.

    Titles of studies, and what was published, are the lab's own words and stay.
    """
    secrets = {secret for info in report.studies.values() for secret in secrets_of(info)}
    studies = {name: anonymous_study(info, info.label) for name, info in report.studies.items()}
    return scrubbed(replace(report, created="", studies=studies), Scrub(secrets, {}))

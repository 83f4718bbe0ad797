"""The reports of all labs, rendered from recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import freeze

from farandole.labs import report as reports
from farandole.labs.report import LabReport, body_words, document

MOST_WORDS = 1_500
LABS = sorted(path.name.removesuffix(".tar.xz") for path in freeze.FROZEN.glob("labs/*"))


def render(fixture: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> LabReport:
    """Return the report of a recorded lab, without files and pictures."""
    found: list[LabReport] = []

    def keep(report: LabReport, folder: Path) -> Path:
        found.append(report)
        return folder / "report.html"

    monkeypatch.setattr(reports, "write_lab", keep)
    with freeze.surroundings():
        freeze.render_lab(fixture, place / "lab", place / "data")
    (report,) = found
    return report


@pytest.mark.parametrize("fixture", LABS)
def test_a_report_is_short(fixture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = render(fixture, tmp_path, monkeypatch)
    assert body_words(document(report)) <= MOST_WORDS

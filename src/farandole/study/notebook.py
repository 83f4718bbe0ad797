"""A study in a notebook: its report's page, in a frame that reaches nothing else."""

from __future__ import annotations

import html
from pathlib import Path

from farandole.study.records import Study

_PAGE = "report.html"


def inline(study: Study) -> str:
    """Return the report's page as a frame; it is written first where it is missing."""
    page = Path(study.path) / _PAGE
    if not page.is_file():
        from farandole.study.api import write_report

        page = write_report(study)
    text = html.escape(page.read_text(errors="replace"), quote=True)
    # Scripts draw the charts; without allow-same-origin they cannot touch the notebook.
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{text}" title="report of the study" '
        'style="width: 100%; height: 720px; border: 0"></iframe>'
    )

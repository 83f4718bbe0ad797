from __future__ import annotations

import html
from pathlib import Path

from farandole.study.folder import create_study
from farandole.study.records import Study


def empty_study(tmp_path: Path) -> Study:
    return create_study(
        tmp_path / "out", label="<b>", command=("x",), spec={}, machine={}, created="now"
    )


def test_the_page_is_shown_in_a_frame_that_reaches_nothing(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    page = "<script>alert('1')</script>\"&"
    Path(study.path, "report.html").write_text(page)
    shown = study._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="')
    assert "allow-same-origin" not in shown
    _, _, rest = shown.partition('srcdoc="')
    inside, _, _ = rest.partition('"')
    assert html.unescape(inside) == page
    assert "<script" not in shown


def test_a_report_that_is_missing_is_written(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    shown = study._repr_html_()
    assert Path(study.path, "report.html").is_file()
    assert "&lt;!doctype html" in shown.lower()

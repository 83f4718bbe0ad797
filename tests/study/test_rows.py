"""A study as rows and DataFrames: each launch, step and metric once, under names that join."""

from __future__ import annotations

import html
import sys
from pathlib import Path

import pytest

from farandole.errors import MissingExtraError
from farandole.study.folder import create_study
from farandole.study.read import read_study
from farandole.study.records import Cell, Metric, Study
from farandole.study.rows import cell_rows, launch_rows, metric_rows, step_rows
from tests.study.folders import BEGIN, add_launch, make_launch, make_study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two cells, three launches; the second of the first cell has two ranks."""
    make_study(tmp_path)
    one = Cell(workers=1, batch=64, params=(("lr", "0.1"),))
    two = Cell(workers=2, batch=32)
    add_launch(tmp_path, make_launch(one, id="a", figures={"epoch_s": 2.0}))
    steps = {"kind": "steps", "columns": {"end_s": [1.0, 3.0], "samples": [64, 64]}}
    metric = {"kind": "metric", "name": "loss", "value": 0.5, "step": 2}
    add_launch(
        tmp_path,
        make_launch(one, id="b", repeat=1, metrics=(Metric(name="acc", value=0.9),)),
        [BEGIN, steps],
        [BEGIN | {"rank": 1}, steps, metric],
    )
    add_launch(tmp_path, make_launch(two, id="c", outcome="failed"))
    return read_study(tmp_path)


def test_cells_count_their_launches(study: Study) -> None:
    rows = list(cell_rows(study))
    assert [(r["cell"], r["workers"], r["launches"], r["succeeded"]) for r in rows] == [
        (0, 1, 2, 2),
        (1, 2, 1, 0),
    ]
    assert rows[0]["param_lr"] == "0.1"
    assert rows[1]["global_batch"] == 64


def test_frames_hold_what_the_rows_hold(study: Study) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frames = study.to_pandas()
    for frame, rows in (
        (frames.cells, cell_rows(study)),
        (frames.launches, launch_rows(study)),
        (frames.steps, step_rows(study)),
        (frames.metrics, metric_rows(study)),
    ):
        pandas.testing.assert_frame_equal(frame, pandas.DataFrame(list(rows)), check_dtype=False)
    joined = frames.steps.merge(frames.launches, on="launch")
    assert joined.groupby("workers").end_s.max().to_dict() == {1: 3.0}


def test_without_pandas_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_study(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[pandas\]'"):
        read_study(tmp_path).to_pandas()


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

"""The same as DataFrames, and one clear line where there is no pandas."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from farandole.errors import MissingExtraError
from farandole.study.read import read_study
from farandole.study.records import Study
from farandole.study.rows import STEP_COLUMNS, cell_rows, launch_rows, metric_rows, step_rows
from tests.study.folders import make_study
from tests.study.test_rows import study  # noqa: F401  a fixture


def test_frames_hold_what_the_rows_hold(study: Study) -> None:  # noqa: F811
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


def test_a_study_without_launches_has_empty_frames(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    make_study(tmp_path)
    frames = read_study(tmp_path).to_pandas()
    assert list(frames.steps.columns) == ["launch", "rank", "step", *STEP_COLUMNS]
    assert [len(frames.cells), len(frames.launches), len(frames.steps)] == [0, 0, 0]
    assert "value" in frames.metrics.columns


def test_without_pandas_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_study(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[pandas\]'"):
        read_study(tmp_path).to_pandas()

"""Studies of scripts that accumulate gradients: what a step is work for, by real launches."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import farandole
from farandole.model.analyse import analyse
from farandole.study.records import Study
from tests.study import scripts

pytestmark = pytest.mark.ranks


def run(folder: Path, text: str) -> Study:
    study = farandole.study(
        [sys.executable, scripts.write(folder, text)],
        workers=[1, 2],
        out=folder / "out",
        steps=24,
        repeats=1,
        no_epoch=True,
        no_today=True,
        no_calibration=True,
        report=False,
        keep_busy=True,
    )
    # Others may use the machine of a test as much as they like.
    return replace(study, launches=tuple(replace(one, busy=False) for one in study.launches))


@pytest.mark.parametrize("script", [scripts.GPT_DDP, scripts.GPT_HOROVOD], ids=["ddp", "horovod"])
def test_accumulation_that_is_divided_by_the_workers_is_strong_scaling(
    tmp_path: Path, script: str
) -> None:
    study = run(tmp_path, script)
    for launch in study.launches:
        passes = 4 // launch.cell.workers
        for rank in launch.ranks:
            assert rank.batch_seen == 6
            assert set(rank.steps.passes[1:]) == {float(passes)}
            assert set(rank.steps.samples[1:]) == {6.0 * passes}
    info = analyse(study)
    (curve,) = info.curves
    assert (curve.scaling, curve.unit, curve.batch) == ("strong", "samples/s", 24)
    assert [point.global_batch for point in curve.points] == [24, 24]
    assert [point.accumulation for point in curve.points] == [4, 2]
    one, two = curve.points
    assert one.step_s is not None
    assert two.step_s is not None
    assert two.speedup is not None
    # The same 24 samples in a step of either: their times alone make the speedup.
    assert two.speedup.value == pytest.approx(one.step_s.value / two.step_s.value)
    assert info.answer.void is None


@pytest.mark.parametrize(
    ("library", "script"),
    [
        ("accelerate", scripts.ACCELERATE),
        ("accelerate", scripts.TRAINER),
        ("lightning", scripts.LIGHTNING),
    ],
    ids=["accelerate", "trainer", "lightning"],
)
def test_a_global_batch_has_the_passes_of_an_update(
    tmp_path: Path, library: str, script: str
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    study = run(tmp_path, script)
    for launch in study.launches:
        assert all(np.median(rank.steps.passes) == 4 for rank in launch.ranks)
    (curve,) = analyse(study).curves
    assert (curve.scaling, curve.batch) == ("weak", 64)
    assert [point.batch for point in curve.points] == [16, 16]
    assert [point.global_batch for point in curve.points] == [64, 128]


def test_without_a_view_of_the_work_there_is_no_speedup(tmp_path: Path) -> None:
    info = analyse(run(tmp_path, scripts.FUNCTIONAL))
    assert info.answer.speedup is None
    assert info.answer.void is not None
    assert "are unknown" in info.answer.void
    assert "farandole.record(samples=...)" in info.answer.next
    assert all(point.speedup is None for curve in info.curves for point in curve.points[1:])

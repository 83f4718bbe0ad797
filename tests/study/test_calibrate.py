"""The link's calibration and copies of scripts: real launches, and machines that cannot."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.study import calibration_worker
from farandole.study.attempt import Setting
from farandole.study.calibrate import (
    SIZES,
    calibrate,
    measure_apart,
    read_apart_launch,
    to_measure,
)
from farandole.study.calibration_worker import copy_environ
from farandole.study.folder import write_apart, write_link
from farandole.study.hosts import Function
from farandole.study.progress import Listener
from farandole.study.read import read_apart, read_study
from farandole.study.records import Apart, Cell, Link
from farandole.study.runner import StudyRun
from farandole.study.spec import Room, Spec
from farandole.study.warm import WarmStarts
from tests.conftest import clean_environ
from tests.study import scripts
from tests.study.folders import BEGIN, add_launch, make_launch, make_study


@pytest.mark.ranks
@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_a_link_is_measured(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A study's variables around it do not make workers of the user's of its workers.
    monkeypatch.setenv("FARANDOLE_RECORD_DIR", "/nonexistent")
    link = calibrate([1, 2], transport, threads=1, budget_s=0.2)
    assert [(workers, nbytes) for workers, nbytes, _ in link.allreduce] == [
        (2, nbytes) for nbytes in SIZES
    ]
    assert all(seconds > 0 for *_, seconds in link.allreduce)
    assert link.peak_bytes_per_s is not None
    assert link.latency_s is not None
    assert link.latency_s < SIZES[-1] / link.peak_bytes_per_s
    assert link.memcpy_bytes_per_s is not None


ROOM = Room(cores=4, physical=4)
CELL = Cell(workers=2, threads=1, batch=16)


def spec_of(*command: str, **changes: Any) -> Spec:
    return Spec(command=command, room=ROOM, workers=(1, 2), batches=(16,), **changes)


def test_one_launch_for_each_number_of_workers_on_a_host() -> None:
    spec = spec_of("train")
    cells = [replace(CELL, workers=workers) for workers in (1, 2, 2, 4, 8)]
    done = [make_launch(cell, id=str(number)) for number, cell in enumerate(cells)]
    assert [launch.id for launch in to_measure(spec, done, ())] == ["1", "3"]
    two = Apart(cell=CELL, computing_together_s=0.1)
    assert [launch.id for launch in to_measure(spec, done, [two])] == ["3"]
    # What failed is tried again.
    failed = Apart(cell=CELL, why_not="no memory")
    assert [launch.id for launch in to_measure(spec, done, [failed])] == ["1", "3"]
    for others in (
        [make_launch(CELL, purpose="accuracy")],
        [make_launch(CELL, outcome="failed")],
        [make_launch(replace(CELL, hosts=2))],
        [make_launch(replace(CELL, today=True))],
    ):
        assert to_measure(spec, others, ()) == []


def copy(place: Path, number: int, *lines: dict[str, Any]) -> None:
    path = place / f"copy-{number}"
    path.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in (BEGIN, *lines))
    (path / "rank-0.jsonl").write_text(text + '{"kind": "apa')


def steps(*durations_s: float) -> dict[str, Any]:
    ends = [sum(durations_s[: at + 1]) for at in range(len(durations_s))]
    each = {"data_s": 0.1, "optimizer_s": 0.2}
    columns = {name: [value] * len(ends) for name, value in each.items()}
    return {"kind": "steps", "columns": {"end_s": ends, **columns}}


def test_figures_are_medians_of_their_phases(tmp_path: Path) -> None:
    first = steps(9.0, 9.0, 1.0, 1.0, 5.0, 9.0, 2.0, 2.1, 1.9)
    copy(
        tmp_path,
        0,
        first,
        {"kind": "apart", "alone": [2, 5]},
        {"kind": "apart", "together": [6, 9]},
        {"kind": "apart", "loaded_alone": 500.0},
        {"kind": "apart", "loaded_together": 400.0},
    )
    told = {"kind": "apart", "together": [1, 3], "loaded_together": 300.0}
    copy(tmp_path, 1, steps(9.0, 3.0, 3.0), told)
    found = read_apart_launch(tmp_path, CELL)
    # Without 0.1 s for the batch and 0.2 s for the update.
    assert found.computing_alone_s == pytest.approx(0.7)
    assert found.computing_together_s == pytest.approx((1.7 + 2.7) / 2)
    assert found.update_alone_s == found.update_together_s == pytest.approx(0.2)
    assert (found.loaded_alone_per_s, found.loaded_together_per_s) == (500.0, 350.0)
    assert found.why_not == ""
    write_apart(tmp_path, [found])
    assert read_apart(tmp_path) == (found,)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"launcher": "torchrun"}, "torchrun starts the workers, not Farandole"),
        ({"jobs": True}, "each launch is a job of its own"),
    ],
)
def test_what_farandole_does_not_start_is_not_measured(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    found = measured(tmp_path, spec_of("train", **changes))
    assert found == Apart(cell=CELL, why_not=why)
    assert list(tmp_path.iterdir()) == []


def measured(
    study: Path, spec: Spec, *, function: Function | None = None, env: dict[str, str] | None = None
) -> Apart:
    environ, warm = clean_environ(**(env or {})), WarmStarts(spec)
    setting = Setting(spec=spec, environ=environ, listener=Listener(), warm=warm, function=function)
    return measure_apart(setting, make_launch(CELL, wall_s=60.0), study, left_s=None)


def complete(found: Apart) -> bool:
    figures = (
        found.computing_alone_s,
        found.computing_together_s,
        found.update_alone_s,
        found.loaded_alone_per_s,
        found.loaded_together_per_s,
    )
    return found.why_not == "" and all(figure is not None and figure > 0 for figure in figures)


# Plain DDP in a world of one; each copy has a file that there may be only one of.
APART = (
    """
import os, pathlib, sys
assert (os.environ["RANK"], os.environ["WORLD_SIZE"], sys.argv[2]) == ("0", "1", "1x16")
pathlib.Path(sys.argv[3], "mine").touch(exist_ok=False)
"""
    + scripts.DDP
)


def go_on(study: Path, spec: Spec) -> bool:
    setting = Setting(
        spec=spec, environ=clean_environ(), listener=Listener(), warm=WarmStarts(spec)
    )
    return StudyRun(path=study, setting=setting).go()


@pytest.mark.ranks
def test_a_study_ends_with_copies_that_compute_and_load(tmp_path: Path) -> None:
    """Go on with a study that has all but this."""
    study, script = tmp_path / "study", scripts.write(tmp_path, APART)
    spec = spec_of(
        *(sys.executable, script, "{batch}", "{workers}x{global_batch}", "{cell_dir}"),
        repeats=1,
        epoch_launches=False,
        today=False,
        folder=str(tmp_path),
    )
    make_study(study, command=list(spec.command), spec=spec.to_json())
    trained: list[dict[str, Any]] = [BEGIN, {"kind": "setup", "framework": "ddp"}, steps(1.0, 1.0)]
    for workers in spec.workers:
        launch = make_launch(replace(CELL, workers=workers), outcome="stopped", wall_s=60.0)
        add_launch(study, launch, *[trained] * workers)
    write_link(study, Link())
    assert go_on(study, replace(spec, calibrates=False))
    assert read_apart(study) == ()
    assert go_on(study, spec)
    (found,) = read_study(study).apart
    assert complete(found), found
    assert found.cell == CELL
    place = study / "apart" / "w2"
    assert sorted(path.parent.name for path in place.glob("work/*/mine")) == ["0", "1"]
    # Once is enough: a launch would begin by emptying its folder.
    (place / "kept").touch()
    assert go_on(study, spec)
    assert (place / "kept").exists()


LAUNCH = {
    "FARANDOLE_RECORD_DIR": "/s/apart/w4",
    "FARANDOLE_CELL_DIR": "/s/apart/w4/work",
    "TENSORBOARD_LOGDIR": "/s/apart/w4/work/tensorboard",
    "FARANDOLE_STOP": '{"steps": 20}',
    "FARANDOLE_PARAMS": json.dumps(
        {"workers": 4, "batch": 8, "global_batch": 32, "seed": 0, "cell_dir": "/s/apart/w4/work"}
    ),
    "HOME": "/home/me",
}


def test_a_copy_is_the_only_worker_and_has_files_of_its_own() -> None:
    found = copy_environ(LAUNCH, 2, 4)
    assert found["FARANDOLE_RECORD_DIR"] == "/s/apart/w4/copy-2"
    assert found["FARANDOLE_CELL_DIR"] == "/s/apart/w4/work/2"
    assert found["TENSORBOARD_LOGDIR"] == "/s/apart/w4/work/2/tensorboard"
    assert found["HOME"] == "/home/me"
    assert json.loads(found["FARANDOLE_PARAMS"]) == {
        "workers": 1,
        "batch": 8,
        "global_batch": 8,
        "seed": 0,
        "cell_dir": "/s/apart/w4/work/2",
    }


def test_each_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in copy_environ(LAUNCH, 2, 4)
    monkeypatch.setattr(calibration_worker, "count_gpus", lambda environ: 4)
    assert copy_environ(LAUNCH, 2, 4)["CUDA_VISIBLE_DEVICES"] == "2"
    some = LAUNCH | {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    assert copy_environ(some, 3, 4)["CUDA_VISIBLE_DEVICES"] == "7"

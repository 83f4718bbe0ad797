"""What one of several copies of a script sees."""

from __future__ import annotations

import json

import pytest

from farandole.study import calibration_worker
from farandole.study.calibration_worker import copy_environ

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


def test_what_ends_a_copy_is_not_what_ends_a_launch() -> None:
    found = copy_environ(LAUNCH, 2, 4)
    assert "FARANDOLE_STOP" not in found
    order = json.loads(found["FARANDOLE_APART"])
    assert order == {"copy": 2, "copies": 4, "control": "/s/apart/w4/control"}


def test_each_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in copy_environ(LAUNCH, 2, 4)
    monkeypatch.setattr(calibration_worker, "count_gpus", lambda environ: 4)
    assert copy_environ(LAUNCH, 2, 4)["CUDA_VISIBLE_DEVICES"] == "2"
    some = LAUNCH | {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    assert copy_environ(some, 3, 4)["CUDA_VISIBLE_DEVICES"] == "7"

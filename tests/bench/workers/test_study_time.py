"""What the driver of studies asks for, and what it makes of their launches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.bench.contestant import WORKERS
from farandole.bench.specimen import Shape, step_s, write_specimen
from farandole.bench.workers import study_time
from farandole.study.records import Launch, Study
from tests.conftest import clean_environ


@pytest.fixture
def launches(tmp_path: Path) -> tuple[Launch, ...]:
    shape = Shape(workers=(1, 2), batches=(32,), widths=(1,), repeats=1, steps_per_rank=60)
    write_specimen(tmp_path / "s", shape)
    found = Study.load(tmp_path / "s").launches
    return tuple(launch for launch in found if launch.purpose == "speed")


def test_a_cell_costs_what_is_left_after_its_launches(launches: tuple[Launch, ...]) -> None:
    in_launches_s = sum(launch.wall_s or 0.0 for launch in launches)
    found = study_time.figures(launches, in_launches_s + 3.0)
    assert found["beyond"] == [pytest.approx(1.5)]
    assert found["cell"] == [pytest.approx((in_launches_s + 3.0) / 2)]
    assert found["launches"] == [pytest.approx(in_launches_s)]
    expected = 2 * 32 / step_s(launches[1].cell)
    assert found["2 workers, batch 32"] == [pytest.approx(expected, rel=0.015)]


def test_a_study_that_lacks_a_launch_is_no_result(launches: tuple[Launch, ...]) -> None:
    study_time.check(launches, cells=2)
    with pytest.raises(SystemExit, match="made 2 launches of 4"):
        study_time.check(launches, cells=4)


def test_the_default_rule_stands_unless_flags_say_so(tmp_path: Path) -> None:
    given = {"workers": [1, 2], "batches": [32, 128]}
    found = study_time.study_arguments(given, tmp_path)
    assert not {"--steps", "--epochs", "--precision"} & set(found)
    whole = study_time.study_arguments({**given, "flags": ["--epochs", "1"]}, tmp_path)
    place = whole.index("--epochs")
    assert whole[place : place + 2] == ["--epochs", "1"]
    assert [part for part in whole if part not in ("--epochs", "1")] == [
        part for part in found if part != "1"
    ]


@pytest.mark.ranks
@pytest.mark.parametrize("worker", ["study_time", "run_time"])
def test_real_launches_of_the_training_script(worker: str) -> None:
    given = {
        "workers": [2],
        "batches": [8],
        "script_flags": ["--steps", "12", "--samples", "400"],
    }
    found = subprocess.run(
        [sys.executable, str(WORKERS / f"{worker}.py"), json.dumps(given)],
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert found.returncode == 0, found.stderr
    reported = json.loads(found.stdout.splitlines()[-1])
    assert reported["series"]["cell"][0] > 0
    if worker == "study_time":
        assert reported["facts"]["2 workers, batch 8"]["steps"] == 12
        assert reported["series"]["2 workers, batch 8"][0] > 0

"""Launches that make a study worthless, and files on which they depend."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.study.read import parse_rank
from farandole.study.records import Cell, Launch, Metric, Rank
from farandole.study.refuse import (
    Files,
    Snapshot,
    StudyRefusedError,
    batch_mismatch,
    mismatch,
    never_trained,
    refuse,
    workers_mismatch,
)
from farandole.study.spec import Room, Spec
from tests.study.folders import BEGIN, make_launch

SPEC = Spec(command=("x", "{batch}"), room=Room(cores=2, physical=2), workers=(2,), batches=(64,))


def parsed(*lines: dict[str, Any]) -> Rank:
    rank = parse_rank([json.dumps(one).encode() + b"\n" for one in lines], name="x")
    assert rank is not None
    return rank


def rank(*, seen: int | None = None, steps: int = 1) -> Rank:
    columns = {"end_s": [float(step) for step in range(steps)]}
    found = parsed(BEGIN, {"kind": "steps", "columns": columns})
    return replace(found, batch_seen=seen, size=None)


def launch(*ranks: Rank) -> Launch:
    return make_launch(Cell(workers=2, batch=64), id="a", ranks=ranks)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (32, "divides the batch"),
        (128, "multiplies"),
        (50, "too little data"),
        (70, "reaches the loader"),
    ],
)
def test_another_batch_is_named_with_both_numbers(seen: int, why: str) -> None:
    said = batch_mismatch(SPEC, launch(rank(seen=seen)))
    assert said is not None
    assert f"batch of 64 per worker, but the script trained with {seen}" in said
    assert why in said


def test_a_launcher_that_starts_another_number_of_workers() -> None:
    own = replace(SPEC, launcher="accelerate launch")
    alone = launch(replace(rank(seen=64), size=1))
    said = workers_mismatch(own, alone)
    assert said is not None
    assert said.startswith("the cell has 2 workers, but accelerate launch started 1.")
    assert mismatch(own, alone) == said
    with pytest.raises(StudyRefusedError, match="accelerate launch started 1"):
        refuse(own, alone, [], Path("p"))
    assert workers_mismatch(own, launch(replace(rank(), size=2))) is None
    assert workers_mismatch(own, launch(rank())) is None  # nobody knows
    assert workers_mismatch(own, launch(replace(rank(steps=0), size=1))) is None
    assert workers_mismatch(SPEC, alone) is None  # Farandole starts as many as it says


def test_a_script_that_never_trains() -> None:
    said = never_trained(SPEC, launch(rank(steps=0)))
    assert said is not None
    assert "optimizer's step()" in said
    assert never_trained(SPEC, launch()) is not None
    assert never_trained(SPEC, launch(rank(steps=1))) is None
    figures = replace(launch(), figures={"throughput": 1.0})
    assert never_trained(SPEC, figures) is None
    metrics = replace(launch(), metrics=(Metric(name="acc", value=1.0),))
    assert never_trained(SPEC, metrics) is None
    assert never_trained(SPEC, replace(launch(), outcome="failed")) is None


def test_only_the_first_launch_stops_a_study() -> None:
    wrong = launch(rank(seen=3))
    with pytest.raises(StudyRefusedError, match="2 workers, batch 64: the cell has"):
        refuse(SPEC, wrong, [], Path("p"))
    refuse(SPEC, wrong, [launch(rank(seen=64))], Path("p"))
    with pytest.raises(StudyRefusedError, match=r"output is in p/output\.txt"):
        refuse(SPEC, launch(), [], Path("p"))


def test_jobs_that_slurm_does_not_take_end_a_study_before_it_begins() -> None:
    jobs = replace(SPEC, jobs=True)
    refused = replace(launch(), outcome="failed", reason="SLURM refused the job: Invalid account")
    with pytest.raises(UsageError, match=r"Invalid account\. Change --sbatch"):
        refuse(jobs, refused, [], Path("launches/a"))
    # One cell may ask for more than there is; the others are worth their time.
    refuse(jobs, refused, [launch()], Path("launches/b"))
    refuse(SPEC, refused, [], Path("launches/a"))


def test_what_was_written_and_what_was_only_read(tmp_path: Path) -> None:
    for name in ("same.pt", "read.pt", "read.txt", "changed.pt"):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000, 1000))
    before = Snapshot(tmp_path, skip=tmp_path / "study")
    (tmp_path / "changed.pt").write_text("longer")
    (tmp_path / "new.pt").write_text("x")
    for name in ("read.pt", "read.txt"):
        os.utime(tmp_path / name, (2000, 1000))
    after = Snapshot(tmp_path, skip=tmp_path / "study")
    assert {Path(path).name for path in after.changed(before)} == {"changed.pt", "new.pt"}
    assert [Path(entry.path).name for entry in after.accessed(before)] == ["read.pt"]
    before.complete = False  # a new file may have been overlooked
    assert {Path(path).name for path in after.changed(before)} == {"changed.pt"}


def launched(name: str, *opened: dict[str, Any]) -> Launch:
    """A launch whose only worker opened these."""
    rank = parsed(BEGIN, *({"kind": "opened", **fields} for fields in opened))
    return make_launch(id=name, ranks=(rank,))


def read(path: Path) -> dict[str, Any]:
    return {"path": str(path.resolve()), "modified_unix_s": path.stat().st_mtime}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A study's folder inside the folder in which its script runs."""
    (tmp_path / "work" / "study").mkdir(parents=True)
    return tmp_path / "work" / "study", tmp_path / "work"


def test_a_checkpoint_elsewhere_that_only_its_time_betrays(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    files = Files(*places)
    elsewhere = tmp_path / "last.pt"
    elsewhere.write_text("x")
    files.check(launched("0001-w1-r0"), began_unix_s=time.time() - 10)
    resumed = Files(*places)
    began_unix_s = time.time() + 10
    with pytest.raises(StudyRefusedError, match="wrote: it continued from there"):
        resumed.check(launched("0002-w1-r0", read(elsewhere)), began_unix_s=began_unix_s)


@pytest.mark.parametrize(
    ("opened", "conflict"),
    [
        ({"path": "/w/a.pt", "modified_unix_s": 50}, True),
        ({"path": "/w/a.pt"}, True),
        ({"path": "/w/a.pt", "modified_unix_s": 150}, False),  # its own
        ({"path": "/w/a.pt", "write": True}, False),
        ({"path": "/w/pretrained.pt", "modified_unix_s": 50}, False),
        ({"path": "/w/log.txt", "modified_unix_s": 50}, False),
    ],
)
def test_a_conflict_is_an_older_launchs_checkpoint_that_was_read(
    places: tuple[Path, Path], opened: dict[str, Any], conflict: bool
) -> None:
    files = Files(*places)
    wrote = [{"path": path, "write": True} for path in ("/w/a.pt", "/w/log.txt")]
    files.check(launched("0001-w1-r0", *wrote), began_unix_s=time.time() - 10)
    if not conflict:
        files.check(launched("0002-w1-r0", opened), began_unix_s=100.0)
        return
    with pytest.raises(StudyRefusedError, match=r"a\.pt.* 0001-w1-r0 .*--cwd cell.*\{cell_dir\}"):
        files.check(launched("0002-w1-r0", opened), began_unix_s=100.0)

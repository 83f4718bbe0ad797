"""Launches that make a study worthless, and files on which they depend."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.study.read import parse_rank
from farandole.study.records import Cell, Launch, Metric, Opened, Rank, Steps, Utilisation
from farandole.study.refuse import (
    Conflict,
    Files,
    Snapshot,
    Span,
    Stamp,
    StudyRefusedError,
    batch_mismatch,
    batch_seen,
    conflicts,
    mismatch,
    never_trained,
    read_between,
    refuse,
    sentence,
    take_snapshot,
    workers_mismatch,
    written,
    written_by_workers,
    written_during,
)
from farandole.study.spec import Room, Spec
from tests.study.folders import BEGIN, make_launch

SPEC = Spec(command=("x", "{batch}"), room=Room(cores=2, physical=2), workers=(2,), batches=(64,))
NONE = np.empty(0)


def rank(*, seen: int | None = None, steps: int = 1) -> Rank:
    column = np.arange(float(steps))
    return Rank(
        rank=0,
        host="h",
        framework="torch",
        device="cpu",
        steps=Steps(**dict.fromkeys(Steps.__dataclass_fields__, column)),
        begin_s=0.0,
        end_s=1.0,
        bytes_sent={},
        gradient_bytes_per_step=None,
        parameters=None,
        peak_memory_bytes=None,
        peak_gpu_bytes=None,
        weights=None,
        sample_hashes=(),
        batch_seen=seen,
        epochs=(),
        dataset_size=None,
        utilisation=Utilisation(**dict.fromkeys(Utilisation.__dataclass_fields__, NONE)),
        metrics=(),
    )


def launch(*ranks: Rank, batch: int = 64) -> Launch:
    return Launch(
        id="a",
        cell=Cell(workers=2, batch=batch),
        repeat=0,
        seed=0,
        purpose="speed",
        outcome="ok",
        ranks=ranks,
    )


@pytest.mark.parametrize(
    ("seen", "why"),
    [(32, "divides the batch"), (128, "multiplies"), (50, "too few"), (70, "reaches the loader")],
)
def test_another_batch_is_named_with_both_numbers(seen: int, why: str) -> None:
    said = batch_mismatch(SPEC, launch(rank(seen=seen)))
    assert said is not None
    assert f"batch of 64 per worker, but the script trained with {seen}" in said
    assert why in said


def test_batches_that_agree_or_that_nobody_set() -> None:
    assert batch_mismatch(SPEC, launch(rank(seen=64))) is None
    assert batch_mismatch(SPEC, launch(rank(seen=None))) is None
    assert batch_mismatch(replace(SPEC, batch_check=False), launch(rank(seen=3))) is None
    assert batch_mismatch(replace(SPEC, batches=()), launch(rank(seen=3))) is None
    assert batch_seen(launch(rank(seen=None), rank(seen=3))) == 3
    assert batch_seen(launch()) is None


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


def stamp(inode: int = 1, size: int = 1, modified: int = 1, accessed: int = 1) -> Stamp:
    return Stamp(inode=inode, size=size, modified_ns=modified, accessed_ns=accessed)


@pytest.mark.parametrize(
    ("after", "is_written"),
    [
        (stamp(), False),
        (stamp(accessed=9), False),
        (stamp(modified=2), True),
        (stamp(size=2), True),
        (stamp(inode=2), True),
    ],
)
def test_a_file_is_written_when_anything_but_its_access_changed(
    after: Stamp, is_written: bool
) -> None:
    before = Snapshot(files={"/a": stamp()})
    assert written(before, Snapshot(files={"/a": after})) == (("/a",) if is_written else ())


def test_a_new_file_is_written_unless_it_may_have_been_overlooked() -> None:
    after = Snapshot(files={"/b": stamp(), "/a": stamp()})
    assert written(Snapshot(), after) == ("/a", "/b")
    assert written(Snapshot(complete=False), after) == ()


@pytest.mark.parametrize(
    ("path", "old", "new", "is_read"),
    [
        ("/w/a.pt", stamp(), stamp(accessed=2), True),
        ("/w/a.pt", stamp(), stamp(), False),
        ("/w/a.pt", stamp(), stamp(accessed=2, modified=2), False),
        ("/w/train.py", stamp(), stamp(accessed=2), False),
        ("/w/a.pt", None, stamp(accessed=2), False),
    ],
)
def test_what_was_accessed_and_not_changed_was_read(
    path: str, old: Stamp | None, new: Stamp, is_read: bool
) -> None:
    before = Snapshot(files={} if old is None else {path: old})
    found = read_between(before, Snapshot(files={path: new}))
    assert [entry.path for entry in found] == ([path] if is_read else [])


@pytest.mark.parametrize(
    ("opened", "found"),
    [
        (Opened(path="/w/a.pt", modified_unix_s=50), True),
        (Opened(path="/w/a.pt"), True),
        (Opened(path="/w/a.pt", modified_unix_s=150), False),  # its own
        (Opened(path="/w/a.pt", write=True), False),
        (Opened(path="/w/pretrained.pt", modified_unix_s=50), False),
        (Opened(path="/w/log.txt", modified_unix_s=50), False),
    ],
)
def test_a_conflict_is_an_older_launchs_checkpoint_that_was_read(
    opened: Opened, found: bool
) -> None:
    earlier = {"/w/a.pt": "0001-w1-r0", "/w/log.txt": "0001-w1-r0"}
    expected = [Conflict(path="/w/a.pt", writer="0001-w1-r0")] if found else []
    assert conflicts(earlier, [opened, opened], began_unix_s=100.0) == expected


def test_the_sentence_names_the_file_and_what_to_pass() -> None:
    text = sentence(Conflict(path="/w/a.pt", writer="0001-w1-r0"), reader="0002-w2-r0")
    for part in ("/w/a.pt", "0001-w1-r0", "0002-w2-r0", "--cwd cell", "{cell_dir}"):
        assert part in text


@pytest.mark.parametrize(
    ("modified", "write", "writer"),
    [
        (15.0, False, "a"),
        (25.0, False, None),
        (30.0, False, "b"),
        (15.0, True, None),
        (None, False, None),
    ],
)
def test_whose_a_file_is_by_the_time_at_which_it_was_written(
    modified: float | None, write: bool, writer: str | None
) -> None:
    spans = [
        Span(launch="a", began_unix_s=10, ended_unix_s=20),
        Span(launch="b", began_unix_s=30, ended_unix_s=40),
    ]
    opened = Opened(path="/x.pt", write=write, modified_unix_s=modified)
    assert written_during(spans, [opened]) == ({} if writer is None else {"/x.pt": writer})


def test_what_workers_wrote_counts_wherever_it_lies() -> None:
    opened = [Opened(path="/b.pt", write=True), Opened(path="/a.pt", write=True)]
    opened += [Opened(path="/c.pt"), opened[0]]
    assert written_by_workers(opened) == ("/a.pt", "/b.pt")


def test_a_snapshot_sees_files_and_passes_over_caches_links_and_the_study(tmp_path: Path) -> None:
    for name in ("a.pt", "sub/deep/b.pt", ".git/c.pt", "__pycache__/d.pt", "study/e.pt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    os.mkfifo(tmp_path / "fifo.pt")
    found = take_snapshot([tmp_path], skip=[tmp_path / "study"])
    names = sorted(os.path.relpath(path, tmp_path.resolve()) for path in found.files)
    assert names == ["a.pt", "sub/deep/b.pt"]
    assert found.complete


def test_a_launch_that_changes_files_is_seen(tmp_path: Path) -> None:
    kept, changed = tmp_path / "kept.pt", tmp_path / "changed.pt"
    for path in (kept, changed):
        path.write_text("x")
    before = take_snapshot([tmp_path])
    changed.write_text("longer")
    (tmp_path / "new.pt").write_text("x")
    found = written(before, take_snapshot([tmp_path]))
    assert [Path(path).name for path in found] == ["changed.pt", "new.pt"]


@pytest.mark.parametrize("limit", [{"most_files": 2}, {"longest_s": -1.0}])
def test_a_snapshot_gives_up_in_time(tmp_path: Path, limit: dict[str, float]) -> None:
    for number in range(5):
        (tmp_path / f"{number}.pt").write_text("x")
    found = take_snapshot([tmp_path], **limit)  # type: ignore[arg-type]
    assert not found.complete
    assert len(found.files) <= 2


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert take_snapshot([tmp_path / "none"]) == Snapshot()


def launched(name: str, *opened: dict[str, Any]) -> Launch:
    """A launch whose only worker opened these."""
    lines = [BEGIN, *({"kind": "opened", **fields} for fields in opened)]
    rank = parse_rank([json.dumps(line).encode() + b"\n" for line in lines], name="x")
    assert rank is not None
    return make_launch(id=name, ranks=(rank,))


def read(path: Path) -> dict[str, Any]:
    return {"path": str(path.resolve()), "modified_unix_s": path.stat().st_mtime}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A study's folder inside the folder in which its script runs."""
    (tmp_path / "work" / "study").mkdir(parents=True)
    return tmp_path / "work" / "study", tmp_path / "work"


def test_a_checkpoint_in_the_working_directory(places: tuple[Path, Path]) -> None:
    study, folder = places
    files = Files(study, folder)
    (folder / "last.pt").write_text("x")
    files.check(launched("0001-w1-r0"), began_unix_s=time.time() - 10)
    began_unix_s = time.time() + 10
    with pytest.raises(StudyRefusedError, match=r"0002-w1-r0 read .*last\.pt.* 0001-w1-r0"):
        files.check(launched("0002-w1-r0", read(folder / "last.pt")), began_unix_s=began_unix_s)


def test_a_checkpoint_elsewhere_that_only_its_time_betrays(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    files = Files(*places)
    elsewhere = tmp_path / "last.pt"
    elsewhere.write_text("x")
    files.check(launched("0001-w1-r0"), began_unix_s=time.time() - 10)
    resumed = Files(*places)
    began_unix_s = time.time() + 10
    with pytest.raises(StudyRefusedError, match="wrote: it went on from there"):
        resumed.check(launched("0002-w1-r0", read(elsewhere)), began_unix_s=began_unix_s)


def test_weights_from_before_the_study_may_be_read_by_all(places: tuple[Path, Path]) -> None:
    study, folder = places
    pretrained = folder / "pretrained.pt"
    pretrained.write_text("x")
    os.utime(pretrained, (1000, 1000))
    files = Files(study, folder)
    for name in ("0001-w1-r0", "0002-w1-r0"):
        files.check(launched(name, read(pretrained)), began_unix_s=time.time())


def test_what_a_launch_wrote_itself_it_may_read(places: tuple[Path, Path]) -> None:
    study, folder = places
    files = Files(study, folder)
    for name in ("0001-w1-r0", "0002-w1-r0"):
        began_unix_s = time.time() - 1
        (folder / "best.pt").write_text(name)
        os.utime(folder / "best.pt")
        files.check(launched(name, read(folder / "best.pt")), began_unix_s=began_unix_s)

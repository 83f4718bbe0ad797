"""Files that launches write and read, and when that makes them depend on each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farandole.study.isolation import (
    Conflict,
    Snapshot,
    Span,
    Stamp,
    conflicts,
    read_between,
    sentence,
    take_snapshot,
    written,
    written_by_workers,
    written_during,
)
from farandole.study.records import Opened


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

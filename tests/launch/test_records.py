from __future__ import annotations

from pathlib import Path

import pytest

from farandole.errors import DataError
from farandole.launch.control import Piece, Records, keep


def test_a_folder_that_is_shared_is_used(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    records = Records(str(tmp_path), "mark")
    assert records.folder == tmp_path
    (tmp_path / "rank-0.jsonl").write_text("{}\n")
    assert list(records.pieces()) == []
    records.close()
    assert (tmp_path / "rank-0.jsonl").is_file()


def test_records_of_a_host_with_other_files_are_sent(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "elsewhere"), "mark")
    assert records.folder is not None
    assert records.folder.stat().st_mode & 0o077 == 0
    content = bytes(range(256)) * 1000
    (records.folder / "rank-2.jsonl").write_bytes(content)
    (records.folder / "rank-3.jsonl").write_bytes(b"three")
    # The head would refuse these, and take the host for a lost one.
    (records.folder / "my own.txt").touch()
    (records.folder / ".hidden").touch()
    (records.folder / "folder").mkdir()
    head = tmp_path / "head"
    head.mkdir()
    for piece in records.pieces():
        keep(head, piece)
    assert (head / "rank-2.jsonl").read_bytes() == content
    assert (head / "rank-3.jsonl").read_bytes() == b"three"
    assert len(list(head.iterdir())) == 2
    records.close()
    assert not records.folder.exists()


def test_nothing_is_recorded_where_nobody_asked() -> None:
    records = Records("", "")
    assert records.folder is None
    assert list(records.pieces()) == []
    records.close()


@pytest.mark.parametrize("name", ["../rank-0.jsonl", "/etc/passwd", "a/b", ".bashrc", "", "x\n"])
def test_nothing_else_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not the name of a record"):
        keep(tmp_path, Piece(name=name, data=b"x"))
    assert list(tmp_path.iterdir()) == []

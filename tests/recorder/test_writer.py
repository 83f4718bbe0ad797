from __future__ import annotations

from pathlib import Path

import pytest

from farandole.recorder.steps import Writer


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    writer = Writer(str(path), exclusive=True)
    writer.write(["a", "b"])
    writer.write([])
    writer.write(["ä"])
    assert path.read_text() == "a\nb\nä\n"
    writer.close()
    writer.write(["late"])
    assert path.read_text() == "a\nb\nä\n"


def test_a_rank_has_one_writer(tmp_path: Path) -> None:
    first = Writer(str(tmp_path / "x"), exclusive=True)
    with pytest.raises(FileExistsError):
        Writer(str(tmp_path / "x"), exclusive=True)
    first.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is full")
def test_a_full_disk_ends_the_recording_only(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer("/dev/full")
    writer.write(["a"])
    writer.write(["b"])
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "No space left on device" in said
    assert "training goes on" in said
    assert not writer.open

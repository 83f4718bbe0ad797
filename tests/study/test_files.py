"""Which launch wrote what, over the launches of a study and after an interruption."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from farandole.study.files import Files
from farandole.study.read import parse_rank
from farandole.study.records import Launch
from farandole.study.refuse import StudyRefusedError
from tests.study.folders import BEGIN, make_launch


def launch(name: str, *opened: dict[str, Any]) -> Launch:
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
    files.check(launch("0001-w1-r0"), began_unix_s=time.time() - 10)
    began_unix_s = time.time() + 10
    with pytest.raises(StudyRefusedError, match=r"0002-w1-r0 read .*last\.pt.* 0001-w1-r0"):
        files.check(launch("0002-w1-r0", read(folder / "last.pt")), began_unix_s=began_unix_s)


def test_a_checkpoint_elsewhere_that_only_its_time_betrays(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    files = Files(*places)
    elsewhere = tmp_path / "last.pt"
    elsewhere.write_text("x")
    files.check(launch("0001-w1-r0"), began_unix_s=time.time() - 10)
    resumed = Files(*places)
    began_unix_s = time.time() + 10
    with pytest.raises(StudyRefusedError, match="wrote: it went on from there"):
        resumed.check(launch("0002-w1-r0", read(elsewhere)), began_unix_s=began_unix_s)


def test_weights_from_before_the_study_may_be_read_by_all(places: tuple[Path, Path]) -> None:
    study, folder = places
    pretrained = folder / "pretrained.pt"
    pretrained.write_text("x")
    os.utime(pretrained, (1000, 1000))
    files = Files(study, folder)
    for name in ("0001-w1-r0", "0002-w1-r0"):
        files.check(launch(name, read(pretrained)), began_unix_s=time.time())


def test_what_a_launch_wrote_itself_it_may_read(places: tuple[Path, Path]) -> None:
    study, folder = places
    files = Files(study, folder)
    for name in ("0001-w1-r0", "0002-w1-r0"):
        began_unix_s = time.time() - 1
        (folder / "best.pt").write_text(name)
        os.utime(folder / "best.pt")
        files.check(launch(name, read(folder / "best.pt")), began_unix_s=began_unix_s)

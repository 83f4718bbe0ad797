"""Beginning studies where nothing is lost, and launches with numbers of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.study.folder import (
    launch_id,
    locked,
    mark_complete,
    new_launch_folder,
    remove_interrupted,
)
from farandole.study.read import read_head, read_study
from farandole.study.records import Cell
from tests.study.folders import add_launch, make_launch, make_study


def test_a_new_study_is_not_complete(tmp_path: Path) -> None:
    study = make_study(tmp_path / "a" / "b")
    assert read_study(tmp_path / "a" / "b") == study
    assert not study.complete
    mark_complete(study)
    assert read_head(tmp_path / "a" / "b").complete


def test_a_study_begins_in_a_folder_that_only_its_lock_is_in(tmp_path: Path) -> None:
    with locked(tmp_path):
        make_study(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["launches", "study.json"]


def test_a_study_is_not_begun_twice(tmp_path: Path) -> None:
    make_study(tmp_path)
    with pytest.raises(UsageError, match="holds a study already"):
        make_study(tmp_path, label="other")
    assert read_head(tmp_path).label == "digits"


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (Cell(workers=2, batch=64), "0007-w2-b64-r1"),
        (Cell(workers=16), "0007-w16-r1"),
        (Cell(workers=1, batch=8, params=(("lr", "../../x"),)), "0007-w1-b8-r1"),
    ],
)
def test_names_of_launches_hold_nothing_of_the_user(cell: Cell, name: str) -> None:
    assert launch_id(7, cell, 1) == name


def test_numbers_go_on_after_those_that_are_there(tmp_path: Path) -> None:
    make_study(tmp_path)
    first = new_launch_folder(tmp_path, Cell(workers=1), 0)
    assert (first.name, (first / "work").is_dir()) == ("0001-w1-r0", True)
    (tmp_path / "launches" / "0041-w1-r0").mkdir()
    (tmp_path / "launches" / "notes").mkdir()
    assert new_launch_folder(tmp_path, Cell(workers=1), 0).name == "0042-w1-r0"


def test_only_interrupted_launches_are_removed(tmp_path: Path) -> None:
    make_study(tmp_path)
    kept = add_launch(tmp_path, make_launch())
    interrupted = new_launch_folder(tmp_path, Cell(workers=1), 0)
    (interrupted / "work" / "model.pt").write_text("x")
    (tmp_path / "launches" / "notes").mkdir()
    assert remove_interrupted(tmp_path) == [interrupted.name]
    assert sorted(path.name for path in kept.parent.iterdir()) == [kept.name, "notes"]

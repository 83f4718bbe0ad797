"""Reading folders: whole ones, and everything else in one clear line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.study.folder import launch_folder
from farandole.study.read import read_head, read_launch, read_study
from farandole.study.records import Cell, Link, Metric, Study
from farandole.study.write import mark_complete, write_launch, write_link
from tests.study.folders import BEGIN, add_launch, make_launch, make_study


def test_without_a_label_a_study_is_called_as_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_study(tmp_path / "laptop", label="")
    assert read_study(tmp_path / "laptop").label == "laptop"
    monkeypatch.chdir(tmp_path / "laptop")
    assert read_study(".").label == "laptop"
    assert read_head(Path()).label == ""


def test_what_was_written_is_read(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    cell = Cell(workers=2, threads=1, batch=64, params=(("lr", "0.1"), ("a b", '"<x>"')))
    launch = make_launch(
        cell,
        last_output=("caf\u00e9 \udcff",),
        argv=("python", "a b.py"),
        figures={"throughput": 12.5, "epoch_s": float("inf")},
        metrics=(Metric(name="acc", value=0.5, epoch=1.0),),
        foreign_share=0.01,
        busy=True,
        seed=3,
        started="2026-01-01T00:00:00+00:00",
    )
    add_launch(tmp_path / "s", launch, [BEGIN, {"kind": "steps", "columns": {"end_s": [1, 2]}}])
    link = Link(latency_s=1e-5, allreduce=((2, 4096, 0.001),))
    write_link(tmp_path / "s", link)
    mark_complete(study)

    found = Study.load(str(tmp_path / "s"))
    assert (found.label, found.command, found.spec) == (study.label, study.command, study.spec)
    assert (found.machine, found.created, found.complete) == (study.machine, study.created, True)
    assert found.link == link
    (read,) = found.launches
    (rank,) = read.ranks
    assert rank.steps.end_s.tolist() == [1.0, 2.0]
    bare = read_launch(launch_folder(tmp_path / "s", read.id), ranks=False)
    assert bare == launch
    assert found.cells == (cell,)


def test_a_launch_without_its_last_file_was_interrupted(tmp_path: Path) -> None:
    make_study(tmp_path)
    add_launch(tmp_path, make_launch(), [BEGIN])
    place = add_launch(tmp_path, make_launch(repeat=1), [BEGIN])
    (place / "launch.json").unlink()
    assert [launch.repeat for launch in read_study(tmp_path).launches] == [0]


def test_launches_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    make_study(tmp_path)
    for number in (10, 9, 10_000, 2):
        place = tmp_path / "launches" / f"{number:04d}-w1-r0"
        place.mkdir()
        launch = make_launch(id=place.name)
        write_launch(place, launch)
    ids = [launch.id for launch in read_study(tmp_path).launches]
    assert ids == ["0002-w1-r0", "0009-w1-r0", "0010-w1-r0", "10000-w1-r0"]


def test_fields_of_the_future_are_passed_over(tmp_path: Path) -> None:
    make_study(tmp_path)
    place = add_launch(tmp_path, make_launch())
    for file in (tmp_path / "study.json", place / "launch.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"mood": "good"}))
    assert len(read_study(tmp_path).launches) == 1


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none does not exist"):
        read_study(tmp_path / "none")


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("")
    with pytest.raises(UsageError, match="is a file, but a study is a folder"):
        read_study(tmp_path / "report.html")


def test_a_table_instead_of_a_folder_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("workers\n1\n")
    with pytest.raises(UsageError, match=r"farandole study import .*t\.csv --out DIR"):
        read_study(tmp_path / "t.csv")


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is empty"):
        read_study(tmp_path)


def test_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UsageError, match=r"is not the folder of a study: it has no study\.json"):
        read_study(tmp_path)


def test_a_part_of_a_study_names_the_whole(tmp_path: Path) -> None:
    make_study(tmp_path)
    place = add_launch(tmp_path, make_launch())
    with pytest.raises(UsageError, match="only a part of a study"):
        read_study(tmp_path / "launches")
    with pytest.raises(UsageError, match=r"is not the folder|only a part"):
        read_study(place)


def test_somebody_elses_study_json(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"schema": 1, "kind": "optuna"}')
    with pytest.raises(UsageError, match="is not a study of Farandole: its kind is 'optuna'"):
        read_study(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_a_damaged_study_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UsageError, match=r"study\.json is damaged"):
        read_study(tmp_path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"outcome": "fine"}, "'fine' is none of ok"),
        ({"cell": {}}, "'workers' is missing"),
        ({"cell": None}, "damaged"),
        ({"figures": {"job_s": "soon"}}, "damaged"),
        ({"schema": "1"}, "its schema is '1'"),
    ],
)
def test_a_damaged_launch_says_how_to_go_on(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    make_study(tmp_path)
    file = add_launch(tmp_path, make_launch()) / "launch.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UsageError, match=why) as caught:
        read_study(tmp_path)
    assert "Remove it, and --resume makes that launch again." in str(caught.value)


@pytest.mark.parametrize("name", ["study.json", "link.json", "launches/0001-w2-b64-r0/launch.json"])
def test_a_newer_schema_is_refused(tmp_path: Path, name: str) -> None:
    make_study(tmp_path)
    add_launch(tmp_path, make_launch())
    write_link(tmp_path, Link())
    file = tmp_path / name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 2}))
    with pytest.raises(UsageError, match="newer Farandole: its schema is 2"):
        read_study(tmp_path)


@pytest.mark.parametrize("name", ["study.json", "launches/0001-w2-b64-r0/launch.json"])
def test_nesting_that_is_too_deep_is_damage(tmp_path: Path, name: str) -> None:
    make_study(tmp_path)
    add_launch(tmp_path, make_launch())
    (tmp_path / name).write_text('{"spec": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(UsageError, match=r"is damaged \(.* nested too deeply\)"):
        read_study(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": 1, "allreduce": 3}', '{"a": ' + "[" * 100_000 + "]" * 100_000]
)
def test_a_damaged_link_is_left_out(tmp_path: Path, text: str) -> None:
    make_study(tmp_path)
    add_launch(tmp_path, make_launch())
    (tmp_path / "link.json").write_text(text)
    study = read_study(tmp_path)
    assert study.link == Link()
    (note,) = study.notes
    assert "link.json is damaged (" in note
    assert note.endswith("The study is read without it.")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    make_study(tmp_path / "s")
    (tmp_path / "s").chmod(0)
    try:
        with pytest.raises(UsageError, match=r"cannot be read \(Permission denied\)"):
            read_study(tmp_path / "s")
    finally:
        (tmp_path / "s").chmod(0o755)

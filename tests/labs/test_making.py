"""Commands of a lab's studies, as a user would type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.cli.main import main
from farandole.labs.making import command_line, import_published, is_complete, study_argv
from farandole.labs.scripts import examples_path
from farandole.study.read import read_study
from tests.labs.tiny import asked, tiny

ONE = tiny(script="train_digits.py").pilot(asked())[0]


def test_a_new_study(tmp_path: Path) -> None:
    argv = study_argv(ONE, tmp_path / "my out", limit_s=83.2, here=tmp_path)
    split = argv.index("--")
    assert argv[:3] == ["study", "-np", "1"]
    assert argv[split - 7 : split] == [
        *("--time-limit", "83s", "--label", "one worker's speed", "--out", "my out", "--no-report")
    ]
    assert argv[split + 1 :] == [str(examples_path("train_digits.py")), ".", "rate"]


def test_an_example_of_a_checkout_is_named_as_its_reader_finds_it(tmp_path: Path) -> None:
    script = examples_path("train_digits.py")
    argv = study_argv(ONE, tmp_path, limit_s=None, here=script.parent.parent)
    assert f"{script.parent.name}/train_digits.py" in argv
    assert "--time-limit" not in argv


def test_a_study_that_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    argv = study_argv(ONE, tmp_path, limit_s=60, here=tmp_path.parent)
    assert argv == ["study", "--resume", tmp_path.name, "--time-limit", "1m", "--no-report"]


def test_a_study_is_extended_by_its_whole_command(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    argv = study_argv(ONE, tmp_path, limit_s=60, here=tmp_path.parent, extend=True)
    assert argv[: argv.index("--")] == [
        *("study", *ONE.flags, "--time-limit", "1m", "--label", ONE.title),
        *("--out", tmp_path.name, "--no-report"),
    ]


def test_a_command_to_type() -> None:
    line = command_line(["study", "--label", "a b"], {"KERAS_BACKEND": "torch", "X": "a b"})
    assert line == "KERAS_BACKEND=torch X='a b' farandole study --label 'a b'"


def test_published_figures_are_imported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    path = tmp_path / "driving"
    import_published("driving", path, run=main, say=said.append)
    assert said[0].startswith("$ farandole study import ")
    assert capsys.readouterr().err == ""
    assert is_complete(path)
    assert [launch.cell.workers for launch in read_study(path).launches] == [2, 4, 4, 8]
    import_published("driving", path, run=main, say=said.append)
    assert len(said) == 1
    # One of an earlier version's table is made anew.
    head = path / "study.json"
    head.write_text(head.read_text().replace('"sha256": "', '"sha256": "0'))
    import_published("driving", path, run=main, say=said.append)
    assert len(said) == 2
    assert is_complete(path)

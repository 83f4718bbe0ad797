"""`farandole lab`: its list, its plan, and one clear line for what cannot be done."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.cli import lab as command
from farandole.cli.main import main
from farandole.errors import DataError, LabFailedError
from farandole.labs import lab as labs
from farandole.labs.lab import Asked, DataFacts, Lab
from farandole.labs.report import LabReport
from farandole.labs.run import data_lines
from tests.labs.report_builders import lab as tiny_report
from tests.labs.tiny import tiny as tiny_lab


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab that takes no time to plan, as the only one."""
    lab = tiny_lab(script=str(tmp_path / "tiny.py"), seconds=60.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labs, "lab_names", lambda: ("tiny",))
    load = labs.load_lab
    monkeypatch.setattr(labs, "load_lab", lambda name: lab if name == "tiny" else load(name))
    return lab


def parse(*argv: str) -> argparse.Namespace:
    return command.COMMAND.parse(argv)


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab"]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[0].split(maxsplit=1) == ["tiny", "how little a lab can be"]
    assert main(["lab", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["schema"] == 1
    assert [(one["name"], one["questions"]) for one in content["labs"]] == [
        ("tiny", {"speed": "How fast?"})
    ]


@pytest.mark.parametrize(
    ("argv", "size", "budget_s"),
    [
        ([], "budget", 900.0),
        (["--budget", "1h"], "budget", 3600.0),
        (["--quick"], "quick", None),
        (["--full"], "full", None),
    ],
)
def test_sizes(argv: list[str], size: str, budget_s: float | None) -> None:
    asked = command.asked_for(parse("tiny", *argv))
    assert (asked.size, asked.budget_s) == (size, budget_s)


def test_what_else_is_asked_for(tmp_path: Path) -> None:
    given = ("tiny", "--data", "my data", "-np", "1,2", "--recipe", "warmup, fixed,warmup")
    asked = command.asked_for(parse(*given))
    assert asked.data == tmp_path / "my data"
    assert asked.workers == (1, 2)
    assert asked.recipes == ("warmup", "fixed")
    assert asked.cores >= 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mnits"], "there is no lab 'mnits'. Labs: tiny."),
        (["tiny", "--quick", "--full"], "--quick and --full exclude each other"),
        (["tiny", "--quick", "--budget", "5m"], "--quick and --budget exclude each other"),
        (["tiny", "--budget", "soon"], "--budget soon: give a time above 0"),
        (["tiny", "--budget", "5s"], "--budget 5s is too short for the lab tiny"),
        (["tiny", "--budget", "1m", "--dry-run"], "at least --budget 90s, or use --quick"),
        (["tiny", "-np", "0"], "-np 0: give numbers from 1 up"),
        (["tiny", "--recipe", "magic"], "There is no recipe 'magic'. There are fixed, linear"),
        (["tiny", "--recipe", "original"], "the lab tiny has no learning rate of its own to try"),
        (["tiny", "--weights", "none"], "--weights none: the lab tiny trains its networks from"),
        (["tiny", "--quick", "--out", "file"], "--out {here}/file is a file"),
        (["tiny", "--quick", "--out", "file/below"], "is a file, or below one"),
        (["tiny", "--quick", "--out", "."], "is not empty and holds no lab (it has file)"),
        (["tiny", "--qick"], "--qick"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["lab", *arguments]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("farandole: ")
    assert says.format(here=tmp_path) in error
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_data_of_the_wrong_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "tiny", "--quick", "--data", "nowhere"]) == 1
    assert "nowhere is not a folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_named_and_counted() -> None:
    def lines(count: int) -> list[str]:
        skipped = tuple(f"{number}.jpg: empty" for number in range(count))
        facts = DataFacts(source="", train=9, test=9, sample="", skipped=skipped)
        return data_lines(tiny_lab(), facts)[1:]

    assert lines(0) == []
    assert lines(1) == ["left out: 0.jpg: empty"]
    assert lines(2)[1:] == ["left out: 1.jpg: empty", "left out: 2 in all"]
    assert len(lines(3000)) == 11
    assert lines(3000)[-1] == "left out: 3,000 in all; the report names more of them"


def test_weights_are_looked_at_before_anything_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(chosen: str) -> None:
        raise DataError(f"{chosen} has the weights of another network.")

    lab = replace(tiny_lab(), check_weights=check)
    monkeypatch.setattr(labs, "load_lab", lambda name: lab)
    assert main(["lab", "tiny", "--quick", "--weights", "mine.pth"]) == 1
    assert f"{tmp_path}/mine.pth has the weights of another network" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    # A file's path is made whole, because scripts may run elsewhere; a name stays one.
    assert command.asked_for(parse("tiny", "--weights", "none")).weights == "none"
    assert command.asked_for(parse("tiny")).weights is None


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux's /proc")
def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    # There nobody can make a folder, root included.
    assert main(["lab", "tiny", "--quick", "--out", "/proc/self/out"]) == 1
    assert "/proc/self/out/.lock cannot be written: " in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "tiny", "--dry-run", "--budget", "6m"]) == 0
    output = capsys.readouterr().out
    # Effort 1: two studies of 120 s; effort 2 would take 360 s.
    assert "  rate: one worker's speed, about 1 s" in output
    assert "  second: two workers, about 2 min" in output
    assert "About 4 min in all." in output
    assert "  epochs: 10 / 1" in output
    assert main(["lab", "tiny", "--dry-run", "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate_s"] == 120.0
    assert list(tmp_path.iterdir()) == []


def test_all_labs_go_on_when_one_fails_and_end_with_an_overview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(lab: Lab, asked: Asked, out: Path, *, anonymous: bool) -> tuple[LabReport, Path]:
        if lab.name == "broken":
            raise LabFailedError("No study of the lab broken has figures.")
        if lab.name == "late":
            raise KeyboardInterrupt
        return tiny_report(), out / "report.html"

    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setattr(labs, "load_lab", lambda name: replace(tiny_lab(), name=name))
    monkeypatch.setattr(labs, "lab_names", lambda: ("broken", "tiny"))
    assert main(["lab", "all", "--quick", "--out", "out"]) == 0
    said = capsys.readouterr()
    assert "the lab broken failed; the others continue" in said.err
    assert "overview: out/report.html" in said.out
    text = (tmp_path / "out" / "report.md").read_text()
    assert "broken did not: No study of the lab broken has figures." in text
    assert "tiny/report.html" in text
    # Ctrl-C keeps what is finished.
    monkeypatch.setattr(labs, "lab_names", lambda: ("tiny", "late", "broken"))
    assert main(["lab", "all", "--quick", "--out", "second"]) == 130
    said = capsys.readouterr()
    assert "Continue with: farandole lab all --quick --out second" in said.err
    assert "tiny: 3 questions answered" in said.out

"""`farandole run`: its flags, and one clear line for what cannot be done."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from farandole.cli.main import main
from tests.conftest import run_cli

SHOW = "import os, sys; print(os.environ['WORLD_SIZE'], *sys.argv[1:])"


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "my train.py"
    path.write_text(SHOW)
    return str(path)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "flags",
    [
        ["-np", "2"],
        ["-n", "2"],
        ["-w", "2"],
        ["--workers", "2"],
        ["--workers=2"],
        ["--nproc-per-node", "2"],
        ["--nproc_per_node=2"],
        ["--num-proc", "2"],
        ["--num_proc", "2"],
        ["-np", "2", "-H", "localhost:2", "--start_timeout", "5", "--silence-timeout=9"],
    ],
)
def test_spellings(flags: list[str], script: str) -> None:
    done = run_cli("run", *flags, "--no_tag", script)
    assert (done.returncode, done.stdout) == (0, "2\n2\n"), done.stderr


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["{script}"], ["--lr", "0.1", "-np", "7"]),
        (["--", "{script}"], ["--", "-h", "--debug"]),
        (["{python}", "{script}"], ["it's", 'a "b"', "x\ty", "*"]),
        (["--", "{python}", "{script}"], []),
        (["-m", "mytrain"], ["--lr", "-m"]),
        (["--", "-m", "mytrain"], ["-x"]),
    ],
)
def test_commands(command: list[str], arguments: list[str], script: str, tmp_path: Path) -> None:
    (tmp_path / "mytrain.py").write_text(SHOW)
    argv = [part.format(script=script, python=sys.executable) for part in command]
    done = run_cli("run", "-np", "1", "--no-tag", *argv, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, " ".join(["1", *arguments]) + "\n"), done.stderr


@pytest.mark.ranks
def test_variables_stand_for_flags(script: str) -> None:
    done = run_cli("run", script, env={"FARANDOLE_NP": "2", "FARANDOLE_THREADS": "5"})
    assert done.stdout.count("2\n") == 2
    assert "2 workers on 1 host, shared memory, 5 threads each\n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-np", "0", "x"], "-np 0: give a number of workers from 1 up, or auto."),
        (["-np", "-1", "x"], "-np -1: give a number"),
        (["-np", "two", "x"], "-np two: give a number"),
        (["-np"], "expected one argument"),
        (["python", "train.py"], "How many workers?"),
        (["-np", "2"], "No command was given"),
        (["-np", "2", "--"], "No command was given"),
        (["-np", "2", "nowhere/train.py"], "nowhere/train.py: there is no such script"),
        (["-np", "2", "no-such-command"], "no-such-command: there is no such command"),
        (["-np", "2", "--transport", "pigeon", "x"], "choose a transport from auto, shm, gloo"),
        (["-np", "2", "--nonsense", "x"], "--nonsense"),
        (["-np", "2", "-H", "n1:2", "python"], "-H n1:2: only localhost"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("farandole: ")
    assert says in output.err
    assert output.err.count("\n") == 1


def test_a_port_in_use_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("MASTER_PORT", str(other.getsockname()[1]))
        assert main(["run", "-np", "2", script]) == 2
    error = capsys.readouterr().err
    assert "Address already in use" in error
    assert "Unset MASTER_PORT" in error
    assert error.count("\n") == 1


def test_a_read_only_folder_is_one_line(
    capsys: pytest.CaptureFixture[str], script: str, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir(mode=0o500)
    # Root may write anywhere, but not even root below a file.
    target = folder if os.getuid() else Path(script) / "logs"
    assert main(["run", "-np", "2", "--output-dir", str(target), script]) == 2
    error = capsys.readouterr().err
    assert f"--output-dir {target} cannot be written to" in error
    assert error.count("\n") == 1


def test_windows_points_to_wsl2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["run", "-np", "2", "train.py"]) == 2
    assert "WSL2" in capsys.readouterr().err

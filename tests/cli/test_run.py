"""`farandole run`: its flags, and one clear line for what cannot be done."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.cli import run
from farandole.cli.main import main
from tests.conftest import clean_environ, cli_argv, run_cli

SHOW = "import os, sys; print(os.environ['WORLD_SIZE'], *sys.argv[1:])"


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "my train.py"
    path.write_text(SHOW)
    return str(path)


def parsed(*arguments: str) -> argparse.Namespace:
    return run.COMMAND.parse(arguments)


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
    ],
)
def test_spellings(flags: list[str]) -> None:
    args = parsed(*flags, "--start_timeout", "5", "--silence-timeout=9", "--no_tag", "x.py")
    assert (args.np, args.start_timeout, args.silence_timeout, args.no_tag) == ("2", "5", "9", True)
    assert args.command_line == ["x.py"]


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["--", "{python}", "{script}"], ["it's", 'a "b"', "x\ty", "*", "--", "-h", "--debug"]),
        (["-m", "mytrain"], ["--lr", "-m", "-np", "7"]),
    ],
)
def test_commands(command: list[str], arguments: list[str], script: str, tmp_path: Path) -> None:
    (tmp_path / "mytrain.py").write_text(SHOW)
    argv = [part.format(script=script, python=sys.executable) for part in command]
    done = run_cli("run", "-np", "1", "--no-tag", *argv, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, " ".join(["1", *arguments]) + "\n"), done.stderr


@pytest.mark.ranks
def test_variables_stand_for_flags_and_a_bare_script_runs_here(script: str) -> None:
    variables = {"FARANDOLE_NP": "2", "FARANDOLE_THREADS": "5"}
    done = run_cli("run", "-H", "localhost:2", script, "--lr", "0.1", "-np", "7", env=variables)
    assert done.stdout.count("2 --lr 0.1 -np 7\n") == 2
    assert "2 workers on 1 host, shared memory, 5 threads each\n" in done.stderr


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


TRAIN = """
import os, sys, time
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
if sys.argv[1] == "wait":
    print("trained", flush=True)
    time.sleep(60)
raise SystemExit(int(sys.argv[1]))
"""


def tracks(file: Path) -> dict[int, set[str]]:
    """The tracks with something in them, by rank."""
    found: dict[int, set[str]] = {}
    for event in json.loads(file.read_text())["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault(event["pid"] - 1, set()).add(event["cat"])
    return found


@pytest.mark.ranks
def test_a_timeline_and_records_that_are_never_mixed(tmp_path: Path) -> None:
    script, file, folder = tmp_path / "train.py", tmp_path / "run.json", tmp_path / "new" / "record"
    script.write_text(TRAIN)
    done = run_cli("run", "-np", "2", "--timeline", file, "--record", folder, script, "0")
    assert done.returncode == 0, done.stderr
    check_timeline(file, done.stderr)
    kept = {f"rank-{rank}{part}.jsonl" for rank in (0, 1) for part in ("", ".events")}
    assert {path.name for path in folder.iterdir()} == kept
    again = run_cli("run", "-np", "2", "--record", folder, script, "0")
    assert again.returncode == 2
    assert "the record of an earlier run is there" in again.stderr


@pytest.mark.ranks
def test_a_timeline_of_a_run_that_fails(tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(TRAIN)
    done = run_cli("run", "-np", "2", "--timeline", file, script, "3")
    assert done.returncode == 3, done.stderr
    check_timeline(file, done.stderr)


def check_timeline(file: Path, said: str) -> None:
    """Check that both ranks trained in a timeline."""
    assert f"timeline of 2 workers in {file}" in said
    assert all({"step", "compute", "optimizer"} <= found for found in tracks(file).values())
    assert set(tracks(file)) == {0, 1}


@pytest.mark.ranks
def test_a_timeline_is_written_after_ctrl_c(tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(TRAIN)
    with subprocess.Popen(
        [*cli_argv(), "run", "-np", "1", "--timeline", str(file), str(script), "wait"],
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "trained" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "timeline of 1 worker " in errors
    assert "optimizer" in tracks(file)[0]


@pytest.mark.ranks
def test_no_room_for_output_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "print.py"
    script.write_text(
        "import time\nwhile True:\n    print('more', flush=True)\n    time.sleep(0.01)"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*cli_argv(), "run", "-np", "2", str(script)],
            env=clean_environ(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    start, *rest = done.stderr.splitlines()
    assert start.startswith("2 workers on 1 host")
    assert rest == ["farandole: stdout cannot be written to: No space left on device."]


@pytest.mark.ranks
def test_a_reader_that_has_seen_enough_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "print.py"
    script.write_text(
        "import time\nwhile True:\n    print('more', flush=True)\n    time.sleep(0.01)"
    )
    with subprocess.Popen(
        [*cli_argv(), "run", "-np", "2", "--no-tag", str(script)],
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "more\n"
        running.stdout.close()
        assert running.wait(60) == 141
        assert len(running.stderr.read().splitlines()) == 1, "the start line"

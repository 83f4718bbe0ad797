"""The flags for SLURM, without any SLURM: job scripts, contradictions, what is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

import pytest

from farandole.cli.main import main
from tests.conftest import cli_argv, run_cli

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers need Linux or macOS")

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_NTASKS": "4",
}
STEP = {**JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"}


class Refused(Protocol):
    """Gives a command that cannot be, and returns the one line that it says."""

    def __call__(self, *arguments: str, env: dict[str, str]) -> str: ...


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    def give(*arguments: str, env: dict[str, str]) -> str:
        monkeypatch.chdir(tmp_path)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert main([*arguments, "--", sys.executable, "-c", ""]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return give


def test_the_job_script_is_printed(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("module load python\n")
    done = run_cli(
        *("run", "--launcher", "slurm", "-N", "2", "--ntasks-per-node", "4", "--threads", "2"),
        *("--sbatch", "account=abc,time=5", "--setup", "setup.sh", "--script-only"),
        *("--record", "out", "--no-tag", "--", "python", "train.py", "--name", "it's"),
        cwd=tmp_path,
        env={"PATH": "/nowhere"},
    )
    assert done.returncode == 0, done.stderr
    run = " ".join([*cli_argv(), "run -np 8 --threads 2 --record out --no-tag"])
    assert (
        done.stdout
        == f"""\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --output=farandole-%j.out
#SBATCH --signal=B:USR1@60
#SBATCH --account=abc
#SBATCH --time=5

# Written by `farandole run --launcher slurm`; sbatch takes it as it is.

cd {tmp_path} || exit

module load python

# exec: SLURM's warning before the time limit (USR1) is meant for what runs here.
exec {run} -- python train.py --name 'it'"'"'s'
"""
    )


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (["-np", "8"], ["--ntasks=8"]),
        (["-np", "2x4"], ["--nodes=2", "--ntasks-per-node=4"]),
        (["-np", "8", "-N", "2"], ["--nodes=2", "--ntasks-per-node=4"]),
        (["-np", "7", "-N", "2"], ["--nodes=2", "--ntasks=7"]),
        (["--ntasks-per-node", "3"], ["--nodes=1", "--ntasks-per-node=3"]),
    ],
)
def test_sizes_of_jobs(
    flags: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--launcher", "slurm", *flags, "--script-only", "--", "true"]) == 0
    found = [line.removeprefix("#SBATCH ") for line in capsys.readouterr().out.splitlines()]
    assert [line for line in found if line.startswith(("--nodes", "--ntasks"))] == lines


@pytest.mark.parametrize(
    ("flags", "env", "says"),
    [
        (["--launcher", "slurm", "-np", "2"], {"PATH": "/nowhere"}, "there is no sbatch on PATH"),
        (
            ["--launcher", "slurm", "-np", "9", "-N", "2", "--ntasks-per-node", "4"],
            {},
            "You asked for 9 workers (-np 9), but 2 nodes with 4 tasks each have 8",
        ),
        (["--launcher", "slurm"], {}, "How many workers?"),
        (["--launcher", "slurm", "-np", "2", "-H", "a:2"], {}, "SLURM chooses the nodes"),
        (["--launcher", "slurm", "-np", "2", "--setup", "no.sh"], {}, "--setup no.sh"),
        (["--launcher", "slurm", "-np", "2", "--sbatch", "nodes=2"], {}, "use -N"),
        (["-np", "2", "--sbatch", "time=5"], {}, "Add --launcher slurm"),
        (["-np", "2", "-N", "2"], {}, "Add --launcher slurm"),
        (["-np", "8"], STEP, "You asked for 8 workers (-np 8), but SLURM gave this step 4 tasks"),
        (
            ["-np", "4", "--timeline", "t.json"],
            STEP,
            "--timeline is for the process that starts all",
        ),
        (["-np", "4", "--record", "folder"], STEP, "--record is for the process that starts all"),
        (["-np", "9"], JOB, "You asked for 9 workers (-np 9), but SLURM gave job 7 8 CPUs"),
        (["-np", "4"], {**JOB, "PATH": "/nowhere"}, "there is no srun on PATH"),
        (["-np", "4"], {**JOB, "SLURM_JOB_NODELIST": "n[1-"}, "is not a SLURM node list"),
        (["-np", "3x1"], JOB, "3x1 needs 3 hosts"),
    ],
)
def test_what_cannot_be_is_one_line(
    flags: list[str], env: dict[str, str], says: str, refused: Refused
) -> None:
    assert says in refused("run", *flags, env=env)


@pytest.mark.parametrize(
    ("flags", "env", "says"),
    [
        (["-np", "2x4"], {}, "-np 2x4 needs 2 hosts, but this study has 1 host"),
        (["-np", "1"], STEP, "srun has started this study 4 times"),
        (["--sbatch", "time=5"], {}, "is for --per-cell-jobs"),
        (["--resume", "old", "--setup", "file"], {}, "use --out old with the whole command"),
        (["--per-cell-jobs", "-np", "1"], {"PATH": "/nowhere"}, "there is no sinfo on PATH"),
        (["--per-cell-jobs", "-H", "a:1"], {}, "lets SLURM choose the nodes"),
    ],
)
def test_what_a_study_cannot_do_is_one_line(
    flags: list[str], env: dict[str, str], says: str, refused: Refused, tmp_path: Path
) -> None:
    assert says in refused("study", *flags, env=env)
    assert list(tmp_path.iterdir()) == []


def test_an_interactive_shell_in_a_step_is_no_worker(tmp_path: Path) -> None:
    """`srun --pty bash`, and a step of one task: workers are started from there."""
    one = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_CPUS_PER_NODE": "4", "SLURMD_NODENAME": "n1"}
    alone = {**STEP, **one, "SLURM_TASKS_PER_NODE": "1", "SLURM_STEP_NUM_TASKS": "1"}
    script = tmp_path / "script.py"
    script.write_text("import os; print(os.environ['FARANDOLE_SIZE'])")
    for env in ({**alone, "SLURM_PTY_PORT": "4100", "SLURM_STEP_NUM_TASKS": "4"}, alone):
        done = run_cli("run", "-np", "2", "--", script, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:2", "[1]<stdout>:2"]

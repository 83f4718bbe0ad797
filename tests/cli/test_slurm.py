"""The flags for SLURM, without any SLURM: job scripts, contradictions, what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from farandole.cli.main import main
from tests.cli.test_usage_errors import STEP
from tests.conftest import cli_argv, run_cli

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers need Linux or macOS")


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

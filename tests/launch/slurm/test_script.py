from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from farandole.launch.slurm_jobs import JobScript, job_name, parse_options, render

GOLDEN = Path(__file__).parent / "golden"
RUN = ("/opt/env/bin/python", "-m", "farandole.cli.main", "run")


def two_nodes() -> JobScript:
    command = ("python", "train.py", "--lr", "0.1")
    return JobScript(
        command=(*RUN, "-np", "8", "--", *command),
        cwd="/home/ada/work",
        num_workers=8,
        num_nodes=2,
        per_node=4,
        name=job_name(command),
        options=parse_options(["account=abc,partition=gpu,time=1:00:00"]),
    )


def everything() -> JobScript:
    return JobScript(
        command=(*RUN, "-np", "3", "--", "python", "it's a script.py", "two\nlines", "$HOME", ""),
        cwd="/home/ada/my work",
        num_workers=3,
        cpus_per_task=2,
        options=parse_options(
            ["job-name=its-own,comment=two words,exclusive", "nodelist=n[1,3],n7,signal=B:USR1@300"]
        ),
        setup='module load python\nsource "$HOME/env/bin/activate"\n',
    )


@pytest.mark.parametrize("job", [two_nodes, everything])
def test_scripts_are_as_they_were(job: object) -> None:
    assert callable(job)
    assert render(job()) == (GOLDEN / f"{job.__name__}.sbatch").read_text()


def test_arguments_arrive_as_they_were_given(tmp_path: Path) -> None:
    """A shell runs the script: whatever stands in an argument stays one argument."""
    arguments = ["it's", 'a "b"', "$HOME", "`id`", "two\nlines", "", "*", "a b", "\\", "#x", "!"]
    job = JobScript(command=("printf", "%s\\0", *arguments), cwd=str(tmp_path), num_workers=1)
    found = subprocess.run(["bash"], input=render(job), capture_output=True, text=True, check=True)
    assert found.stdout.split("\0")[:-1] == arguments


def test_setup_comes_first_and_in_the_folder(tmp_path: Path) -> None:
    job = JobScript(
        command=("sh", "-c", 'echo "$READY $PWD"'),
        cwd=str(tmp_path),
        num_workers=1,
        setup="export READY=yes",
    )
    found = subprocess.run(["bash"], input=render(job), capture_output=True, text=True, check=True)
    assert found.stdout == f"yes {tmp_path}\n"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--lr", "0.1"], "train"),
        (["python", "a b/tr äin.py"], "tr-in"),
        (["-m", "package.train"], "package.train"),
        (["python", "-m", "package.train", "x"], "package.train"),
        (["/usr/bin/env"], "env"),
        (["/"], "farandole"),
        ([], "farandole"),
    ],
)
def test_jobs_are_named_after_their_script(command: list[str], name: str) -> None:
    assert job_name(command) == name

"""Jobs of a real SLURM with two nodes: steps, allocations, submission, ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from farandole.testing.slurm import SlurmCluster
from tests.conftest import clean_environ, cli_argv, eventually
from tests.launch.slurm import scripts

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

SLOW_S = 120.0


@pytest.fixture(autouse=True)
def _no_job_is_left(cluster: SlurmCluster) -> None:
    cluster.cancel_all()


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def run(
    cluster: SlurmCluster, folder: Path, *argv: str, timeout_s: float = SLOW_S
) -> subprocess.CompletedProcess[str]:
    environ = clean_environ(**cluster.environ, XDG_STATE_HOME=str(folder / "state"))
    return subprocess.run(
        argv,
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def python() -> str:
    return cli_argv()[0]


def test_a_script_needs_no_flag_in_a_step(cluster: SlurmCluster, tmp_path: Path) -> None:
    step = ("srun", "-N2", "--ntasks-per-node=2", "--overcommit")
    done = run(cluster, tmp_path, *step, python(), script(tmp_path, scripts.MEET))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank} of 4 from slurm: n1 n1 n2 n2" for rank in range(4)
    ]
    assert (tmp_path / "state/farandole/key").stat().st_mode & 0o077 == 0


def test_ranks_may_go_round_the_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    step = ("srun", "-N2", "--ntasks-per-node=2", "--distribution=cyclic")
    done = run(cluster, tmp_path, *step, python(), script(tmp_path, scripts.MEET))
    assert done.returncode == 0, done.stderr
    assert "rank 3 of 4 from slurm: n1 n2 n1 n2" in done.stdout


def test_tasks_of_a_step_become_workers(cluster: SlurmCluster, tmp_path: Path) -> None:
    step = ("srun", "-N2", "--ntasks-per-node=1", *cli_argv(), "run")
    done = run(cluster, tmp_path, *step, "--", python(), script(tmp_path, scripts.MEET))
    assert done.returncode == 0, done.stderr
    assert "rank 1 of 2 from slurm: n1 n2" in done.stdout
    done = run(cluster, tmp_path, *step, "-np", "8", "--", python(), "x.py")
    assert "You asked for 8 workers (-np 8), but SLURM gave this step 2 tasks" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_allocation_gets_a_step(cluster: SlurmCluster, tmp_path: Path) -> None:
    command = ("run", "-np", "3", "--", python(), script(tmp_path, scripts.MEET))
    allocation = ("salloc", "-N2", "--ntasks-per-node=2")
    done = run(cluster, tmp_path, *allocation, *cli_argv(), *command)
    assert done.returncode == 0, done.stderr
    lines = sorted(line.partition("rank")[2] for line in done.stdout.splitlines())
    assert lines == [f" {rank} of 3 from farandole: n1 n1 n2" for rank in range(3)]


def test_a_submitted_job_is_followed_to_its_exit_code(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    command = ("--", python(), script(tmp_path, scripts.FAIL))
    nodes = ("run", "--launcher", "slurm", "-N", "2", "--ntasks-per-node", "1")
    done = run(cluster, tmp_path, *cli_argv(), *nodes, "--sbatch", "time=5", *command)
    assert done.returncode == 3, done.stderr
    assert "[0]<stdout>:together" in done.stdout
    assert re.search(r"rank 1.*n2.*failed first", done.stdout)
    job = re.search(r"submitted job (\d+)", done.stderr)
    assert job is not None
    assert f"job {job[1]} ended: FAILED, exit code 3" in done.stderr
    assert (tmp_path / f"farandole-{job[1]}.out").read_text() == done.stdout


def test_what_slurm_refuses_is_one_line(cluster: SlurmCluster, tmp_path: Path) -> None:
    flags = ("--launcher", "slurm", "-np", "1", "--sbatch", "partition=none", "--", "true")
    done = run(cluster, tmp_path, *cli_argv(), "run", *flags)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "SLURM refused the job" in line
    assert "nvalid partition" in line


def test_ctrl_c_cancels_the_job(cluster: SlurmCluster, tmp_path: Path) -> None:
    flags = ("--launcher", "slurm", "-np", "2x1", "--", python())
    output = tmp_path / "followed"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*cli_argv(), "run", *flags, script(tmp_path, scripts.WAIT)],
            env=clean_environ(**cluster.environ),
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        eventually(lambda: output.read_text().count("here") == 2, timeout_s=SLOW_S)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SLOW_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "cancelling job" in said
    eventually(lambda: not cluster.call("squeue", "--noheader").strip(), timeout_s=SLOW_S)


def test_a_warning_before_the_time_limit_is_a_clean_stop(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    flags = ("--launcher", "slurm", "-np", "2x1", "--threads", "1", "--", python())
    output = tmp_path / "followed"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*cli_argv(), "run", *flags, script(tmp_path, scripts.TRAIN), str(tmp_path)],
            env=clean_environ(**cluster.environ),
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        eventually(lambda: "training" in output.read_text(), timeout_s=SLOW_S)
        (job,) = cluster.call("squeue", "--noheader", "--format=%A").split()
        # What SLURM does by itself a minute before the end (--signal=B:USR1@60).
        cluster.call("scancel", "--signal=USR1", "--batch", job)
        _, said = process.communicate(timeout=SLOW_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output.read_text() + said
    first, second = ((tmp_path / f"rank-{rank}.txt").read_text() for rank in (0, 1))
    assert first == second
    assert "stopped cleanly" in output.read_text()


@pytest.mark.soak
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_workers_of_a_plain_step_hear_the_warning_themselves(
    cluster: SlurmCluster, tmp_path: Path, nodes: str
) -> None:
    """What SLURM does with --signal=USR1@60, without `B:`: all tasks get the signal."""
    pytest.importorskip("torch")
    said = tmp_path / "followed"
    with said.open("wb") as file:
        process = subprocess.Popen(
            [
                *("srun", f"-N{nodes}", "--ntasks=2", "--overcommit", python()),
                *(script(tmp_path, scripts.TRAIN), str(tmp_path)),
            ],
            env=clean_environ(**cluster.environ, XDG_STATE_HOME=str(tmp_path), OMP_NUM_THREADS="1"),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: "training" in said.read_text(), timeout_s=SLOW_S)
        (job,) = cluster.call("squeue", "--noheader", "--format=%A").split()
        cluster.call("scancel", "--signal=USR1", job)
        process.wait(SLOW_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said.read_text()
    first, second = ((tmp_path / f"rank-{rank}.txt").read_text() for rank in (0, 1))
    assert first == second


STUDY = ("--throughput", r"img/sec: ([0-9.]+)", "--repeats", "1", "--no-epoch", "--no-calibration")


def study_rows(folder: Path) -> set[tuple[int, int, float]]:
    rows = set()
    for file in folder.glob("launches/*/launch.json"):
        launch = json.loads(file.read_text())
        assert launch["outcome"] == "ok", launch["reason"]
        cell = launch["cell"]
        rows.add((cell["workers"], cell["hosts"], launch["figures"]["throughput"]))
    return rows


def test_a_study_makes_steps_of_its_allocation(cluster: SlurmCluster, tmp_path: Path) -> None:
    flags = ("-np", "1,2,2x1", *STUDY, "--no-today", "--out", "study", "--json")
    command = ("--", python(), script(tmp_path, scripts.FIGURES))
    allocation = ("salloc", "-N2", "--exclusive")
    done = run(cluster, tmp_path, *allocation, *cli_argv(), "study", *flags, *command)
    assert done.returncode == 0, done.stderr
    assert study_rows(tmp_path / "study") == {(1, 1, 100.0), (2, 1, 200.0), (2, 2, 200.0)}
    assert "2 workers on 2 hosts" in done.stderr
    (there,) = (tmp_path / "study").glob("launches/*-w2-h2-*/output.txt")
    assert {line.split()[0].rpartition(":")[2] for line in there.read_text().splitlines()} == {
        "n1",
        "n2",
    }
    (found,) = json.loads(done.stdout[done.stdout.index("{") :])["studies"]
    placed = [[p["cell"]["hosts"] for p in curve["points"]] for curve in found["curves"]]
    assert placed == [[1, 1], [1, 2]]


PER_CELL = ("--per-cell-jobs", "-np", "1x1,2x1", *STUDY, "--out", "study")


def test_a_study_of_jobs_is_interrupted_and_resumed(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Each launch is a job. Ctrl-C cancels the one that runs; what has ended is kept."""
    command = ("--", python(), script(tmp_path, scripts.HELD))
    process = subprocess.Popen(
        [*cli_argv(), "study", *PER_CELL, "--sbatch", "time=5", *command],
        env=clean_environ(**cluster.environ, XDG_STATE_HOME=str(tmp_path / "state")),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    outputs = "study/launches/*-w2-h2-*/output.txt"
    try:
        eventually(
            lambda: "".join(o.read_text() for o in tmp_path.glob(outputs)).count("held") == 2,
            timeout_s=SLOW_S,
        )
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SLOW_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "farandole study --resume study" in said
    assert "Traceback" not in said
    eventually(lambda: not cluster.call("squeue", "--noheader").strip(), timeout_s=SLOW_S)
    assert study_rows(tmp_path / "study") == {(1, 1, 100.0)}
    (tmp_path / "go").touch()
    done = run(cluster, tmp_path, *cli_argv(), "study", "--resume", "study")
    assert done.returncode == 0, done.stderr
    assert study_rows(tmp_path / "study") == {(1, 1, 100.0), (2, 2, 200.0)}
    assert len(list(tmp_path.glob("farandole-*.out"))) == 3


@pytest.mark.parametrize(
    ("option", "words"),
    [("partition=none", "no partition none"), ("time=soon", "nvalid --time specification")],
)
def test_a_study_of_jobs_that_slurm_refuses(
    cluster: SlurmCluster, tmp_path: Path, option: str, words: str
) -> None:
    flags = (*PER_CELL, "--sbatch", option, "--", "true")
    done = run(cluster, tmp_path, *cli_argv(), "study", *flags)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("study/launches/*/launch.json"))

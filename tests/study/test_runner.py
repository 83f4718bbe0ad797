"""Real launches: cheap scripts for what the runner does, small trainings for what it sees."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import farandole
from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.verdicts import void_of
from farandole.study.hosts import function_name
from farandole.study.records import Launch, Study
from farandole.study.refuse import StudyRefusedError
from tests.conftest import clean_environ, cli_argv, eventually, keras_on, run_cli
from tests.study import scripts

pytestmark = pytest.mark.ranks
METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def run(script: str, *arguments: str, workers: Any = (1, 2), **flags: Any) -> Study:
    settled = {
        "out": "out",
        "throughput": scripts.THROUGHPUT,
        "repeats": 1,
        "no_epoch": True,
        "no_today": True,
        "no_calibration": True,
        "report": False,
        # Other tests run beside these.
        "keep_busy": True,
        **flags,
    }
    return farandole.study([sys.executable, script, *arguments], workers=list(workers), **settled)


def outcomes(study: Study) -> list[tuple[int, str]]:
    return [(launch.cell.workers, launch.outcome) for launch in study.launches]


def place(launch: Launch) -> Path:
    return Path("out/launches", launch.id)


def test_every_launch_has_its_folder_and_its_values(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.PRINTS)
    odd = ["it's", 'a "b"', "x\ty\nz", "*", "{not_ours}", "{}", "--bs={batch}x{workers}", "{seed}"]
    study = run(script, *odd, params={"batch": [8]}, metrics=["acc=acc ([0-9.]+)"], label="mine")
    assert outcomes(study) == [(1, "ok"), (2, "ok")]
    assert study.complete
    assert study.label == "mine"
    for launch in study.launches:
        size = launch.cell.workers
        assert launch.figures == {"throughput": 100.0 * size}
        assert [metric.value for metric in launch.metrics] == [0.5]
        output = (place(launch) / "output.txt").read_text()
        lines = [line for line in output.splitlines() if ":argv " in line]
        assert len(lines) == size
        wanted = [*odd[:6], f"--bs=8x{size}", "0"]
        assert json.loads(lines[0].partition("argv ")[2]) == wanted
        assert launch.argv[2:] == tuple(wanted)
        assert launch.wall_s is not None
        assert launch.foreign_share is not None


def test_repeats_take_turns_and_more_values_extend(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.PRINTS)
    study = run(script, repeats=2)
    first = [(launch.id, launch.started) for launch in study.launches]
    assert [launch.cell.workers for launch in study.launches] == [1, 2, 2, 1]
    study = run(script, measure="accuracy", seeds=2, workers=[1])
    assert [(launch.id, launch.started) for launch in study.launches[:4]] == first
    # The folder holds what either asked for: seeds for both numbers of workers.
    assert [(x.purpose, x.cell.workers, x.seed) for x in study.launches[4:]] == [
        ("accuracy", 1, 0),
        ("accuracy", 2, 0),
        ("accuracy", 2, 1),
        ("accuracy", 1, 1),
    ]


def test_a_failing_cell_is_a_result_and_the_study_goes_on(tmp_path: Path) -> None:
    script = scripts.write(
        tmp_path,
        "import os\nif os.environ['WORLD_SIZE'] == '1': raise ValueError('only for two')\n"
        + scripts.PRINTS,
    )
    study = run(script, repeats=2)
    assert outcomes(study) == [(1, "failed"), (2, "ok"), (2, "ok")]
    failed = study.launches[0]
    assert "ValueError: only for two (my train.py:2)" in failed.reason
    assert failed.last_output[-1] == "ValueError: only for two"


def test_out_of_memory_ends_the_cell_only(tmp_path: Path) -> None:
    script = scripts.write(
        tmp_path,
        "import json, os, time\n"
        "if json.loads(os.environ['FARANDOLE_PARAMS'])['batch'] > 8:\n"
        "    hold = bytearray(b'x') * 300_000_000\n"
        "    time.sleep(60)\n" + scripts.PRINTS,
    )
    study = run(script, "{batch}", params={"batch": [8, 16]}, workers=[1], memory="100M")
    assert outcomes(study) == [(1, "ok"), (1, "out_of_memory")]
    assert "more than its limit of 100 MB" in study.launches[1].reason


def test_the_largest_batch_that_fits_is_found(tmp_path: Path) -> None:
    script = scripts.write(
        tmp_path,
        "import json, os\n"
        "if json.loads(os.environ['FARANDOLE_PARAMS'])['batch'] > 40: raise MemoryError\n"
        + scripts.PRINTS,
    )
    study = run(script, "{batch}", params={"batch": [16, "max"]}, workers=[1])
    assert [launch.cell.batch for launch in study.launches] == [16, 40]


def test_a_time_limit_leaves_what_there_is(tmp_path: Path) -> None:
    script = scripts.write(
        tmp_path,
        "import os, time\nif os.environ['WORLD_SIZE'] == '2': time.sleep(60)\n" + scripts.PRINTS,
    )
    study = run(script, time_limit="2s", repeats=3)
    assert outcomes(study) == [(1, "ok")]
    assert not study.complete


def test_prepare_runs_before_each_launch(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.PRINTS)
    prepare = [sys.executable, "-c", "open('{cell_dir}/ready', 'x'); print('prepared')"]
    study = run(script, prepare=prepare)
    for launch in study.launches:
        assert (place(launch) / "work" / "ready").exists()
        assert "prepared" in (place(launch) / "output.txt").read_text()
    study = run(script, prepare=[sys.executable, "-c", "exit(3)"], workers=[1], out="other")
    assert outcomes(study) == [(1, "failed")]
    assert "--prepare" in study.launches[0].reason


def test_a_script_that_never_trains(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, "print('hello')\n")
    with pytest.raises(StudyRefusedError, match=r"without a training step.*optimizer's step\(\)"):
        run(script, throughput=None, workers=[1])
    # Nothing is recorded: with a script that trains the same folder goes on.
    scripts.write(tmp_path, scripts.PRINTS)
    assert outcomes(run(script, workers=[1])) == [(1, "ok")]


def test_a_launch_that_goes_on_from_another_ones_checkpoint(tmp_path: Path) -> None:
    script = scripts.write(
        tmp_path,
        "from pathlib import Path\n"
        "path = Path('model.pt')\n"
        "path.read_bytes() if path.exists() else path.write_bytes(b'x')\n" + scripts.PRINTS,
    )
    with pytest.raises(StudyRefusedError, match=r"read .*model\.pt.*--cwd cell"):
        run(script, workers=[1], repeats=2)


def test_what_cannot_be_begun_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such command"):
        farandole.study(["no-such-command"], workers=[1], out="out")
    with pytest.raises(UsageError, match="nothing about speed"):
        run(scripts.write(tmp_path, scripts.PRINTS), workers=[4000])
    assert not Path("out").exists()


WAITS = """
import os, sys, time
from pathlib import Path
if int(os.environ["WORLD_SIZE"]) == 2 and not Path(sys.argv[1], "go").exists():
    Path(sys.argv[1], "pid" + os.environ["RANK"]).write_text(str(os.getpid()))
    time.sleep(60)
"""


def begin(
    script: str, tmp_path: Path, *launcher: str, workers: str = "1,2"
) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a study by the command line, and wait until its launch with 2 workers is under way."""
    flags = ["-np", workers, "--repeats", "1", "--no-epoch", "--no-today", "--keep-busy"]
    flags += ["--throughput", scripts.THROUGHPUT, "--out", "out", "--no-report"]
    study = subprocess.Popen(
        [*cli_argv(), "study", *flags, "--", sys.executable, *launcher, script, str(tmp_path)],
        env=clean_environ(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    files = [tmp_path / "pid0", tmp_path / "pid1"]
    try:
        eventually(lambda: all(file.exists() and file.read_text() for file in files), 60.0)
    except BaseException:
        study.kill()
        study.communicate()
        raise
    return study, [int(file.read_text()) for file in files]


def gone(pids: list[int]) -> bool:
    return not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_study_goes_on(tmp_path: Path, signum: int) -> None:
    script = scripts.write(tmp_path, WAITS + scripts.PRINTS)
    process, pids = begin(script, tmp_path)
    with process:
        process.send_signal(signum)
        _, said = process.communicate(timeout=20)
    eventually(lambda: gone(pids))
    if signum != signal.SIGKILL:
        assert process.returncode == 128 + signum
        assert "Continue with: farandole study --resume out" in said
    before = Study.load(tmp_path / "out")
    assert outcomes(before) == [(1, "ok")]
    assert not before.complete
    (tmp_path / "go").touch()
    # From elsewhere: the folder knows where its command runs.
    done = run_cli("study", "--no-report", "--resume", tmp_path / "out", cwd=Path("/"))
    assert done.returncode == 0, done.stderr
    after = Study.load(tmp_path / "out")
    assert outcomes(after) == [(1, "ok"), (2, "ok")]
    assert after.launches[0] == before.launches[0]
    assert after.complete


def test_torchruns_workers_end_with_the_study(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, WAITS + scripts.PRINTS)
    process, pids = begin(script, tmp_path, "-m", "torch.distributed.run", workers="2")
    with process:
        process.kill()
        process.communicate(timeout=20)
    eventually(lambda: gone(pids))


def test_a_study_cannot_run_twice_at_once(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, WAITS + scripts.PRINTS)
    with begin(script, tmp_path)[0] as process:
        done = run_cli("study", "--resume", tmp_path / "out")
        assert done.returncode == 2
        assert f"in use by process {process.pid}" in done.stderr
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_plain_ddp_is_followed_and_stopped(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.DDP)
    study = run(script, "{batch}", params={"batch": [16]}, throughput=None, steps=12)
    assert outcomes(study) == [(1, "stopped"), (2, "stopped")]
    for launch in study.launches:
        assert len(launch.ranks) == launch.cell.workers
        assert [rank.batch_seen for rank in launch.ranks] == [16] * launch.cell.workers
        assert {len(rank.steps) for rank in launch.ranks} == {12}
    assert study.launches[1].ranks[0].bytes_sent["gradients"] > 0


def test_torchrun_keeps_its_workers(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.DDP)
    study = farandole.study(
        [sys.executable, "-m", "torch.distributed.run", script, "{batch}"],
        workers=[2],
        params={"batch": [16]},
        out="out",
        repeats=1,
        steps=12,
        no_epoch=True,
        keep_busy=True,
        no_calibration=True,
        report=False,
    )
    (launch,) = study.launches
    assert launch.outcome == "stopped", launch.reason
    assert "--nproc-per-node=2" in launch.argv
    assert {len(rank.steps) for rank in launch.ranks} == {12}
    assert len(launch.ranks) == 2


def test_an_unchanged_horovod_script_and_its_params(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.HOROVOD)
    study = run(
        script, workers=[2], params={"batch": [8]}, throughput=None, measure="accuracy", seeds=1
    )
    assert outcomes(study) == [(2, "ok")]
    (launch,) = study.launches
    assert [rank.batch_seen for rank in launch.ranks] == [8, 8]
    assert [metric.name for metric in launch.ranks[0].metrics] == ["val_loss", "val_loss"]


@pytest.mark.timeout(300)  # Keras takes its time to start beside other tests
def test_a_fit_of_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in keras_on("torch").items():
        monkeypatch.setenv(name, value)
    script = scripts.write(tmp_path, scripts.KERAS)
    flags = {"throughput": None, "measure": "accuracy", "seeds": 1}
    study = run(script, params={"batch": [16]}, **flags)
    assert outcomes(study) == [(1, "ok"), (2, "ok")]
    for launch in study.launches:
        workers = launch.cell.workers
        assert len(launch.ranks) == workers
        assert void_of(launch) is None
        for rank in launch.ranks:
            assert rank.framework == "farandole.keras"
            assert (rank.batch_seen, rank.dataset_size) == (16, 512)
            assert len(rank.steps) == 3 * 512 // 16 // workers
            assert len(rank.epochs) == 3
            named = {name: [m.epoch for m in rank.metrics if m.name == name] for name in METRICS}
            assert named == {name: [0.0, 1.0, 2.0] for name in METRICS}
    one, two = study.launches[1].ranks
    assert one.bytes_sent["gradients"] > 0
    assert [m.value for m in one.metrics] == [m.value for m in two.metrics]
    rows = analyse(study).each("metrics")
    assert {row.cell.workers for row in rows if row.metric == "val_accuracy"} == {1, 2}


def test_a_study_of_a_function(tmp_path: Path) -> None:
    def train(batch: int, lr: float = 0.5, workers: int = 0) -> None:
        print(f"img/sec: {batch * workers * lr}")

    study = farandole.study(
        train,
        workers=[1, 2],
        params={"batch": [8], "lr": [0.25]},
        out="out",
        throughput=scripts.THROUGHPUT,
        repeats=1,
        no_epoch=True,
        no_today=True,
        keep_busy=True,
        report=False,
    )
    assert [launch.figures["throughput"] for launch in study.launches] == [2.0, 4.0]
    # The function is kept: the command line can go on with it.
    (place(study.launches[1]) / "launch.json").unlink()
    done = run_cli("study", "--no-report", "--resume", "out", "--keep-busy")
    assert done.returncode == 0, done.stderr
    study = Study.load("out")
    assert [launch.figures["throughput"] for launch in study.launches] == [2.0, 4.0]
    with pytest.raises(UsageError, match="needs 'depth'"):
        farandole.study(lambda depth: None, workers=[1], out="other")
    # Another function does not pass for this one.
    with pytest.raises(UsageError, match="holds a study of another command"):
        farandole.study(lambda batch: None, workers=[1], params={"batch": [8]}, out="out")
    assert function_name(study.command) == "train"

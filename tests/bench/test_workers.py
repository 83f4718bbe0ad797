"""What workers do: clocks, the barrier, networks, agreement on names, studies and their report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from farandole.bench.plan import MODELS
from farandole.bench.run import WORKERS
from farandole.bench.synthetic_study import Shape, step_s, write_study
from farandole.bench.workers import measure, models, study_tasks
from farandole.bench.workers.measure import LINE_BYTES
from farandole.bench.workers.recorder_task import Step, ratios
from farandole.study.records import Study
from farandole.testing import FakeWorld, Member, Nursery
from tests.conftest import clean_environ


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8, 64])
def test_sums_neither_overflow_nor_go_unchecked(num_ranks: int) -> None:
    array = np.ones(4, dtype=np.float32)

    def allreduce() -> None:
        np.multiply(array, num_ranks, out=array)

    times_s = measure.time_allreduces(allreduce, array, num_ranks=num_ranks, repeats=50)
    assert len(times_s) == 50
    assert np.isfinite(array).all()


def test_a_wrong_sum_ends_the_worker() -> None:
    array = np.ones(4, dtype=np.float32)
    with pytest.raises(SystemExit, match="the sum is wrong"):
        measure.time_allreduces(lambda: None, array, num_ranks=2, repeats=1)


def test_a_worker_that_imported_farandole_is_refused() -> None:
    with pytest.raises(SystemExit, match="may not import farandole"):
        measure.forbid_farandole()


@pytest.mark.parametrize("library", ["none", "gloo"])
def test_the_limit_and_ddp_train_without_farandole(library: str, tmp_path: Path) -> None:
    fd = os.memfd_create("farandole-test-barrier")
    os.ftruncate(fd, LINE_BYTES)
    given = {"task": "torch_tasks.train", "library": library, "model": "mlp", "warmup": 1}
    given |= {"steps": 2, "meet": False, "rank": 0, "num_ranks": 1, "barrier_fd": fd}
    # The worker itself fails if it has imported farandole.
    given |= {"rendezvous": str(tmp_path / "meeting")}
    reported = _run_worker(tmp_path, given, pass_fds=(fd,))
    os.close(fd)
    assert len(reported["series"]["step"]) == 2
    assert reported["facts"]["num_parameters"] == MODELS["mlp"][1]
    assert reported["memory_kb"].keys() == {"pss", "pss_anon", "pss_shmem"}


def _run_worker(folder: Path, given: dict[str, Any], pass_fds: tuple[int, ...] = ()) -> Any:
    found = subprocess.run(
        [sys.executable, str(WORKERS), json.dumps({**given, "report_dir": str(folder)})],
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        pass_fds=pass_fds,
    )
    assert found.returncode == 0, found.stderr
    return json.loads((folder / "rank-0.json").read_text())


_WORKER = """\
import pathlib, sys
sys.path.append(sys.argv[1])
from workers.measure import Barrier
rank, num_ranks, fd, folder = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
meet = Barrier(fd=fd, rank=rank, num_ranks=num_ranks)
for round_number in range(20):
    pathlib.Path(folder, f"{rank}-{round_number}").touch()
    meet.wait()
    here = all(
        pathlib.Path(folder, f"{peer}-{round_number}").exists() for peer in range(num_ranks)
    )
    assert here, f"rank {rank} went on alone in round {round_number}"
"""


@pytest.mark.ranks
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_nobody_goes_on_before_all_have_come(tmp_path: Path, num_ranks: int) -> None:
    fd = os.memfd_create("farandole-test-barrier")
    os.ftruncate(fd, num_ranks * LINE_BYTES)
    argv = [sys.executable, "-c", _WORKER, str(WORKERS.parent)]
    processes = [
        subprocess.Popen([*argv, str(rank), str(num_ranks), str(fd), str(tmp_path)], pass_fds=(fd,))
        for rank in range(num_ranks)
    ]
    os.close(fd)
    assert [process.wait(timeout=60) for process in processes] == [0] * num_ranks


@pytest.mark.parametrize("name", MODELS)
def test_the_networks_have_the_sizes_that_the_rows_name(name: str) -> None:
    task = models.task(name)
    assert sum(one.numel() for one in task.model.parameters()) == MODELS[name][1]
    assert task.model(torch.zeros(2, *task.sample_shape)).shape == (2, task.num_classes)


def few_names(_: Member) -> tuple[int, int]:
    import farandole.torch as hvd
    from farandole.bench.workers.torch_tasks import time_agreement, time_opposite

    hvd.init()
    found = len(time_agreement(hvd, 5, 2)), len(time_opposite(hvd, 7, 3, 2))
    hvd.shutdown()
    return found


@pytest.mark.ranks
def test_each_step_and_round_is_timed(nursery: Nursery) -> None:
    with FakeWorld(2, nursery=nursery) as world:
        assert world.run(few_names) == [(2, 2), (2, 2)]


def recorded(time_s: float, pair: int | None = None, extra: str = "") -> Step:
    return Step(time_s, recorded=True, pair=pair, extra=extra)


def bare(time_s: float, pair: int) -> Step:
    return Step(time_s, recorded=False, pair=pair)


def test_a_step_is_compared_with_its_neighbour_whichever_comes_first() -> None:
    steps = [recorded(3.0, 0), bare(2.0, 0), bare(4.0, 1), recorded(5.0, 1)]
    assert ratios(steps, {}) == [1.5, 1.25]


@pytest.mark.parametrize(
    ("extra", "out_of", "expected"),
    [
        # One step of eight takes 0.8 more: 0.1 for each.
        ([("noise", 1.8)], {"noise": 8}, 1.1),
        # One that was disturbed changes little.
        ([("noise", 1.4), ("noise", 1.4), ("noise", 8.0)], {"noise": 12}, 1.1),
        ([("noise", 2.0), ("flush", 5.0)], {"noise": 10, "flush": 40}, 1.2),
    ],
)
def test_what_steps_that_did_more_took_is_shared_out_over_all(
    extra: list[tuple[str, float]], out_of: dict[str, int], expected: float
) -> None:
    steps = [recorded(1.0, 0), bare(1.0, 0)]
    steps += [recorded(time_s, extra=kind) for kind, time_s in extra]
    assert ratios(steps, out_of) == pytest.approx([expected])


def test_a_cell_costs_what_is_left_after_its_launches(tmp_path: Path) -> None:
    shape = Shape(workers=(1, 2), batches=(32,), widths=(1,), repeats=1, steps_per_rank=60)
    write_study(tmp_path / "s", shape)
    launches = [one for one in Study.load(tmp_path / "s").launches if one.purpose == "speed"]
    in_launches_s = sum(launch.wall_s or 0.0 for launch in launches)
    found = study_tasks.figures(launches, in_launches_s + 3.0)
    assert found["beyond"] == [pytest.approx(1.5)]
    assert found["cell"] == [pytest.approx((in_launches_s + 3.0) / 2)]
    assert found["launches"] == [pytest.approx(in_launches_s)]
    expected = 2 * 32 / step_s(launches[1].cell)
    assert found["2 workers, batch 32"] == [pytest.approx(expected, rel=0.015)]
    study_tasks.check(launches, cells=2)
    with pytest.raises(SystemExit, match="made 2 launches of 4"):
        study_tasks.check(launches, cells=4)


@pytest.mark.ranks
@pytest.mark.parametrize("task", ["study", "run"])
def test_real_launches_of_the_training_script(task: str, tmp_path: Path) -> None:
    flags = ["--steps", "12", "--samples", "400"]
    given = {"task": f"study_tasks.{task}", "workers": [2], "batches": [8], "script_flags": flags}
    reported = _run_worker(tmp_path, given)
    assert reported["series"]["cell"][0] > 0
    if task == "study":
        assert reported["facts"]["2 workers, batch 8"]["steps"] == 12
        assert reported["series"]["2 workers, batch 8"][0] > 0


@pytest.mark.ranks
def test_warm_and_cold_launches_take_turns(tmp_path: Path) -> None:
    given = {"task": "study_tasks.warm", "workers": 2, "batch": 8, "steps": 8, "pairs": 2}
    reported = _run_worker(tmp_path, given)
    assert len(reported["series"]["step"]) == len(reported["series"]["length"]) == 1
    assert min(reported["series"]["step"] + reported["series"]["length"]) > 0


def test_a_report_is_timed_and_its_memory_read(tmp_path: Path) -> None:
    small = {"workers": [1, 2], "batches": [32], "widths": [1], "repeats": 2, "steps_per_rank": 30}
    reported = _run_worker(tmp_path, {"task": "study_tasks.report", "shape": small})
    assert reported["facts"]["steps"] == 30 * 3 * 3
    assert reported["facts"]["page_bytes"] > 100_000  # the charts' scripts are in it
    assert reported["series"]["report"][0] > 0
    # NumPy, Altair and the renderer are more than 30 MB in any case.
    assert reported["series"]["peak_memory"][0] > 30e6

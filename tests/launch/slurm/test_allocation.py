from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.launch.placement import Placement, Shape
from farandole.launch.slurm_allocation import (
    check_step,
    nodes_to_reach,
    read_allocation,
    step_tasks,
)

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
    "SLURM_TASKS_PER_NODE": "2(x2)",
}
BATCH = {**JOB, "SLURM_NTASKS": "4", "SLURM_STEP_ID": "batch"}
STEP = {**JOB, "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


def counts(placement: Placement) -> dict[str, int]:
    return {share.name: len(share.ranks) for share in placement.hosts}


def test_there_is_none_outside_of_a_job() -> None:
    assert read_allocation({}) is None
    assert read_allocation({"SLURM_NTASKS": "4"}) is None


@pytest.mark.parametrize(
    ("environ", "workers", "placed"),
    [
        # As it was submitted: two tasks on each node.
        (BATCH, 4, {"n1": 2, "n2": 2}),
        (BATCH, 1, {"n1": 1}),
        (BATCH, 3, {"n1": 2, "n2": 1}),
        # SLURM_NTASKS binds only inside of a step: the job has more CPUs than tasks.
        (BATCH, 6, {"n1": 4, "n2": 2}),
        (BATCH, 8, {"n1": 4, "n2": 4}),
        # Nobody asked for tasks: what SLURM counts by itself says nothing.
        (JOB, 4, {"n1": 4}),
        (JOB | {"SLURM_GPUS_ON_NODE": "2"}, 4, {"n1": 2, "n2": 2}),
        (JOB | {"SLURM_JOB_CPUS_PER_NODE": "1,7"}, 4, {"n1": 1, "n2": 3}),
    ],
)
def test_workers_are_packed(environ: dict[str, str], workers: int, placed: dict[str, int]) -> None:
    found = read_allocation(environ)
    assert found is not None
    assert counts(found.place(workers)) == placed


def test_shapes_are_spread() -> None:
    found = read_allocation(BATCH)
    assert found is not None
    assert counts(found.spread(Shape(hosts=2, workers=3))) == {"n1": 3, "n2": 3}
    assert counts(found.spread(Shape(hosts=1, workers=4))) == {"n1": 4}
    with pytest.raises(UsageError, match="3x1 needs 3 hosts"):
        found.spread(Shape(hosts=3, workers=1))


def test_too_many_workers_are_refused() -> None:
    found = read_allocation(BATCH)
    assert found is not None
    with pytest.raises(UsageError) as caught:
        found.place(9)
    assert str(caught.value) == (
        "You asked for 9 workers (-np 9), but SLURM gave job 7 8 CPUs on 2 nodes. Use -np 8, or "
        "submit with --ntasks=9."
    )


def test_contradicting_variables_are_named() -> None:
    with pytest.raises(UsageError, match="SLURM_JOB_CPUS_PER_NODE='4'"):
        read_allocation(BATCH | {"SLURM_JOB_CPUS_PER_NODE": "4"})
    with pytest.raises(UsageError, match="SLURM_TASKS_PER_NODE='2,2,2'"):
        read_allocation(BATCH | {"SLURM_TASKS_PER_NODE": "2,2,2"})
    with pytest.raises(UsageError, match=r"SLURM_JOB_NODELIST='n\[1-'"):
        read_allocation(BATCH | {"SLURM_JOB_NODELIST": "n[1-"})


@pytest.mark.parametrize(
    ("environ", "tasks"),
    [
        ({}, None),
        (BATCH, None),
        (STEP, 4),
        (STEP | {"SLURM_STEP_NUM_TASKS": "2"}, 2),
        # A shell to work in.
        (STEP | {"SLURM_PTY_PORT": "41000"}, None),
        (STEP | {"SLURM_STEP_NUM_TASKS": "1"}, None),
    ],
)
def test_tasks_of_a_step(environ: dict[str, str], tasks: int | None) -> None:
    assert step_tasks(environ) == tasks


def test_a_launch_inside_of_a_worker_is_neither_a_task_nor_for_all_nodes() -> None:
    """The worker's agent is a task of a step, whose variables are handed down."""
    inside = {**STEP, "FARANDOLE_JOB": "abc"}
    assert check_step(inside, "8") is None
    assert nodes_to_reach(STEP) is not None
    assert nodes_to_reach(inside) is None


def test_np_must_not_contradict_a_step() -> None:
    assert check_step(STEP, None) == check_step(STEP, "4") == check_step(STEP, "auto") == 4
    assert check_step(BATCH, "8") is None
    with pytest.raises(UsageError) as caught:
        check_step(STEP, "8")
    assert str(caught.value).startswith(
        "You asked for 8 workers (-np 8), but SLURM gave this step 4 tasks (SLURM_NTASKS=4)"
    )
    assert "--ntasks=8" in str(caught.value)


@pytest.mark.parametrize(
    ("np", "variable", "says"),
    [
        ("2x4", "", r"You asked for 8 workers \(-np 2x4\), but SLURM gave this step 4 tasks"),
        (None, "8", r"You asked for 8 workers \(FARANDOLE_NP=8\), .* Use FARANDOLE_NP=4,"),
        ("two", "", "-np two: give a number of workers"),
        ("0", "", r"You asked for 0 workers \(-np 0\)"),
    ],
)
def test_ways_to_contradict_a_step(np: str | None, variable: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_step({**STEP, "FARANDOLE_NP": variable}, np)
    assert check_step({**STEP, "FARANDOLE_NP": "8"}, "2x2") == 4

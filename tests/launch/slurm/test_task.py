from __future__ import annotations

from farandole.launch.plan import Plan
from farandole.launch.slurm_allocation import task_environ
from farandole.world.environment import read_world

TASK = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURMD_NODENAME": "n2",
}
PLAN = Plan(argv=("x",), num_workers=4, threads=2)


def made_for(environ: dict[str, str], plan: Plan = PLAN) -> dict[str, str]:
    return task_environ(environ, plan, network_name=lambda node: f"{node}.cluster")


def test_a_task_has_torchruns_variables_and_stays_slurms() -> None:
    made = made_for(TASK)
    assert {name: made[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")} == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "n1.cluster",
    }
    world = read_world(made)
    assert (world.source, world.job_id, world.hosts) == ("slurm", "7.2", ("n1", "n2"))
    assert made["OMP_NUM_THREADS"] == "2"


def test_all_tasks_of_a_step_have_one_port_and_other_steps_another() -> None:
    first = made_for({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"})
    assert first["MASTER_PORT"] == made_for(TASK)["MASTER_PORT"]
    other = made_for({**TASK, "SLURM_STEP_ID": "3"})
    assert other["MASTER_PORT"] != first["MASTER_PORT"]


def test_what_the_user_set_is_kept() -> None:
    made = made_for({**TASK, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"})
    assert (made["MASTER_ADDR"], made["MASTER_PORT"]) == ("10.0.0.1", "29500")


def test_a_torchrun_inside_is_nearer() -> None:
    made = made_for(TASK) | {"TORCHELASTIC_RUN_ID": "x"}
    assert read_world(made).source == "torchrun"

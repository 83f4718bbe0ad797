"""A task of an srun step that becomes a worker: `srun farandole run -- python train.py`; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from farandole.launch.plan import Plan
from farandole.launch.variables import launcher_environ
from farandole.world.environment import read_world
from farandole.world.tcp import ports_of


def task_environ(
    environ: Mapping[str, str], plan: Plan, *, network_name: Callable[[str], str]
) -> dict[str, str]:
    """Build the worker's environment from its task's: SLURM has given it a place already.

    Scripts for torch.distributed find torchrun's variables, which SLURM does not set.

    Args:
        environ: The task's own.
        plan: What the worker runs.
        network_name: Tells under which name the network knows a node.

    Raises:
        UsageError: SLURM's variables cannot be read.
    """
    world = read_world(environ)
    address = environ.get("MASTER_ADDR", "")
    if not address:
        address = "127.0.0.1" if world.one_host else network_name(world.hosts[0])
    made = launcher_environ(environ, plan)
    made |= {
        "RANK": str(world.rank),
        "WORLD_SIZE": str(world.size),
        "LOCAL_RANK": str(world.local_rank),
        "LOCAL_WORLD_SIZE": str(world.local_size),
        "MASTER_ADDR": address,
        # Not one of those at which our own workers meet.
        "MASTER_PORT": environ.get("MASTER_PORT") or str(ports_of(f"{world.job_id}/torch")[0]),
        # By this Farandole knows that torchrun's variables are SLURM's.
        "FARANDOLE_STEP": world.job_id,
        "FARANDOLE_HOROVOD_ALIAS": "on" if plan.horovod_alias else "off",
    }
    return made

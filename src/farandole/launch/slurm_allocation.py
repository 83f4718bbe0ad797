"""What SLURM gave the job that this process runs in: hosts, and room for workers on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.format import plural
from farandole.launch.placement import Placement, Shape, Slots, pack, parse_shape, spread
from farandole.launch.plan import Plan
from farandole.launch.variables import launcher_environ
from farandole.world.environment import read_world
from farandole.world.slurm import in_step, per_node, slurm_hosts
from farandole.world.tcp import ports_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The nodes of one job."""

    job_id: str
    hosts: tuple[str, ...]
    tasks: tuple[int, ...]
    """Tasks of each node, as the job was submitted for; empty when it does not say."""
    cpus: tuple[int, ...]
    """CPUs of each node that are the job's."""
    gpus: int = 0
    """GPUs of the job on this node; others are taken to have as many."""

    @property
    def num_slots(self) -> int:
        """How many workers the job was submitted for, or has room for."""
        return sum(self.tasks) or sum(slots.count for slots in self.room)

    @property
    def room(self) -> tuple[Slots, ...]:
        """How many workers fit: one per GPU, or per CPU."""
        counts = [self.gpus or cpus for cpus in self.cpus]
        return _slots(self.hosts, counts)

    def place(self, num_workers: int, *, flag: str = "-np") -> Placement:
        """Fill node after node, by the job's own tasks where it has enough of them.

        Raises:
            UsageError: The job has no room for so many.
        """
        if self.tasks and num_workers <= sum(self.tasks):
            return pack(_slots(self.hosts, self.tasks), num_workers, flag=flag)
        room = self.room
        most = sum(slots.count for slots in room)
        if num_workers > most:
            noun = "GPUs" if self.gpus else "CPUs"
            nodes = plural(len(self.hosts), "node")
            raise UsageError(
                f"You asked for {plural(num_workers, 'worker')} ({flag} {num_workers}), but "
                "SLURM gave job "
                f"{self.job_id} {most} {noun} on {nodes}. Use {flag} {most}, or submit with "
                f"--ntasks={num_workers}."
            )
        return pack(room, num_workers, flag=flag)

    def spread(self, shape: Shape) -> Placement:
        """Put as many workers as a shape says on each of the first nodes.

        Raises:
            UsageError: There are fewer nodes, or less room on one of them.
        """
        return spread(self.room, shape)


def read_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Read the job's own variables; None outside of a job.

    Raises:
        UsageError: They cannot be read, or contradict each other.
    """
    job_id = environ.get("SLURM_JOB_ID")
    if not job_id:
        return None
    hosts = slurm_hosts(environ, step=False)
    if not hosts:
        return None
    cpus = per_node(environ, "SLURM_JOB_CPUS_PER_NODE") or (1,) * len(hosts)
    # SLURM sets tasks per node always, and what was asked for only if it was.
    asked = "SLURM_NTASKS" in environ or "SLURM_NTASKS_PER_NODE" in environ
    tasks = per_node(environ, "SLURM_TASKS_PER_NODE") if asked else ()
    if len(cpus) != len(hosts) or len(tasks) not in (0, len(hosts)):
        name = "SLURM_TASKS_PER_NODE" if len(cpus) == len(hosts) else "SLURM_JOB_CPUS_PER_NODE"
        raise UsageError(
            f"SLURM gave this job {plural(len(hosts), 'node')} (SLURM_JOB_NODELIST), but {name}="
            f"{environ[name]!r} speaks of another number. Leave SLURM's variables as they are."
        )
    return Allocation(job_id=job_id, hosts=hosts, tasks=tasks, cpus=cpus, gpus=_gpus(environ))


def nodes_to_reach(environ: Mapping[str, str], *, forced: bool = False) -> Allocation | None:
    """Return the allocation around this process, if srun is needed to reach its nodes.

    On the one node of a job workers are children of this process, as outside of a job: nothing is
    gained by a step, and a study sees what others take of the machine.

    Args:
        environ: With the job's variables.
        forced: Take srun there too.

    Raises:
        UsageError: The variables cannot be read.
    """
    found = read_allocation(environ)
    if found is None or forced:
        return found
    if "FARANDOLE_JOB" in environ:
        return None  # a launch inside of a worker is for its own host
    return None if found.hosts == (environ.get("SLURMD_NODENAME"),) else found


def step_tasks(environ: Mapping[str, str]) -> int | None:
    """Return how many tasks the srun step has that this process is a task of; None outside of one.

    A step of one task, and the shell of `srun --pty`, are places to start workers from, not
    workers: None. What is started inside of a worker carries the variables of its agent's step.
    """
    if not in_step(environ) or "SLURM_PTY_PORT" in environ or "FARANDOLE_JOB" in environ:
        return None
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text) if int(text) > 1 else None
    return None


def check_step(environ: Mapping[str, str], np: str | None) -> int | None:
    """Return the tasks of the srun step around us, which -np must not contradict.

    Args:
        environ: With the step's variables.
        np: What -np says: a number, auto or 2x4; FARANDOLE_NP holds where it says nothing.

    Raises:
        UsageError: It asks for another number.
    """
    tasks = step_tasks(environ)
    flag = "-np " if np is not None else "FARANDOLE_NP="
    text = (np if np is not None else environ.get("FARANDOLE_NP", "")).strip()
    if tasks is None or text in ("", "auto"):
        return tasks
    shape = parse_shape(text)
    if shape is None and not text.isdecimal():
        raise UsageError(f"{flag}{text}: give a number of workers from 1 up, or auto.")
    asked = int(text) if shape is None else shape.size
    if asked == tasks:
        return tasks
    raise UsageError(
        f"You asked for {plural(asked, 'worker')} ({flag}{text}), but SLURM gave this step "
        f"{plural(tasks, 'task')} "
        f"(SLURM_NTASKS={tasks}), and each of them is a worker. Use {flag}{tasks}, start the step "
        f"with srun --ntasks={asked}, or leave srun away: farandole run starts the step itself."
    )


def _gpus(environ: Mapping[str, str]) -> int:
    text = environ.get("SLURM_GPUS_ON_NODE", "")
    return int(text) if text.isdecimal() else 0


def _slots(hosts: tuple[str, ...], counts: list[int] | tuple[int, ...]) -> tuple[Slots, ...]:
    return tuple(Slots(name=name, count=n) for name, n in zip(hosts, counts, strict=True) if n)


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

"""Reading the launcher's variables: the one place where the environment becomes a World."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from farandole.errors import UsageError
from farandole.world.slurm import in_step, slurm_hosts, tasks_per_node

# Who am I: one worker's place among all workers, as one frozen value.

Source = Literal["farandole", "torchrun", "openmpi", "mpich", "slurm", "horovodrun", "single"]

TRANSPORTS = ("auto", "shm", "gloo", "mpi", "nccl")
# Importing torch takes ten seconds and more on a cold or crowded disk; a minute is beyond that,
# and still short enough for somebody who waits for an answer.
DEFAULT_START_TIMEOUT_S = 60.0
# Importing torch takes some 3 to 5 s of a core's time for every rank; four times that is patience.
_START_TIMEOUT_S_PER_SHARER = 20.0


def scaled_start_timeout_s(num_workers: int, cores: int) -> float:
    """Return how long ranks wait for each other: longer where they share cores to import torch."""
    return DEFAULT_START_TIMEOUT_S + _START_TIMEOUT_S_PER_SHARER * max(0.0, num_workers / cores - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One worker's place among all workers of its job, read once from the environment."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    """Number of this worker's host among the hosts that have a worker with its local rank."""
    cross_size: int
    source: Source
    """Which launcher's variables were read; "mpich" stands for MVAPICH and Intel MPI too."""
    hostname: str
    hosts: tuple[str, ...] = ()
    """All hosts in the order of the launcher, where it tells; otherwise empty."""
    rank_hosts: tuple[str, ...] = ()
    """The host of each rank, where `farandole run` started them on several; otherwise empty."""
    master_addr: str | None = None
    master_port: int | None = None
    agent_store: bool = False
    """True when torchrun's agent serves the store at master_addr:master_port, not rank 0."""
    job_id: str = ""
    """What the launcher calls this job; empty when it gives no name."""
    start_timeout_s: float = DEFAULT_START_TIMEOUT_S
    transport: str = "auto"
    """The transport that was asked for, not the one that will be found."""
    overlap: str = "auto"
    """FARANDOLE_OVERLAP: whether buckets are reduced while backward runs: auto, on or off."""
    sharded: bool = False
    """FARANDOLE_SHARDED=1: each worker updates a part of the weights, which a host has once."""
    pickle_allowed: bool = False
    """FARANDOLE_ALLOW_PICKLE=1: objects from other hosts may be unpickled."""
    dynamic_sets: bool = False
    """HOROVOD_DYNAMIC_PROCESS_SETS=1: process sets may be added and removed after init()."""
    address: str = ""
    """FARANDOLE_ADDRESS: where workers of other hosts reach this one; "" to find it by routing."""
    inject: str = ""
    """FARANDOLE_INJECT: the faults that `farandole run --inject` plants."""
    board: str | None = None
    """Path of the launcher's bulletin board; None when another launcher started this worker."""
    generation: int = 0
    """The number of the generation that this place is for; 0 where the run is not elastic."""
    one_machine: bool = False
    """Whether hosts are names of this machine only (an elastic run's localhost and 127.0.0.1)."""

    @property
    def allow_pickle(self) -> bool:
        """Say whether objects that are not plain data may travel between the workers."""
        return self.one_host or self.pickle_allowed

    @property
    def one_host(self) -> bool:
        """Say whether all workers run on this host."""
        return self.one_machine or self.local_size == self.size

    @property
    def sharing(self) -> int:
        """The number of workers that share this machine's cores."""
        return self.size if self.one_machine else self.local_size


_LOOPBACK = ("localhost", "::1")


_START_TIMEOUT = "FARANDOLE_START_TIMEOUT"


def read_world(
    environ: Mapping[str, str], *, hostname: str | None = None, cores: int | None = None
) -> World:
    """Read this worker's place from the variables of whichever launcher started it.

    The nearest launcher wins: Farandole's own variables first, except where torchrun was started
    inside a worker of Farandole; then torchrun, Open MPI, MPICH, SLURM, horovodrun. Plain `python`
    is one worker.

    Args:
        environ: The environment; `os.environ` outside of tests.
        hostname: This host's name; the system's when None.
        cores: How many its workers share, which decides how long ranks wait for each other where
            nobody has said it; None: that does not matter.

    Raises:
        UsageError: A variable cannot be read, or contradicts another; the message names both.
    """
    reader = _Reader(environ, hostname or platform.node() or "localhost")
    world = _choose(reader)()
    if cores is None or _START_TIMEOUT in environ:
        return world
    return _with(world, start_timeout_s=scaled_start_timeout_s(world.local_size, cores))


def _choose(reader: _Reader) -> Callable[[], World]:
    env = reader.env
    # Farandole names its own job in torchrun's variable: another name there means that a torchrun
    # was started inside one of its workers, and is the nearer launcher.
    inner_torchrun = env.get("TORCHELASTIC_RUN_ID", env.get("FARANDOLE_JOB")) != env.get(
        "FARANDOLE_JOB"
    )
    if reader.has("FARANDOLE_RANK", "FARANDOLE_SIZE") and not inner_torchrun:
        return reader.farandole
    # `srun farandole run` sets torchrun's variables for the script; SLURM's say more.
    if "FARANDOLE_STEP" in env and in_step(env) and "TORCHELASTIC_RUN_ID" not in env:
        return reader.slurm
    if reader.has("RANK", "WORLD_SIZE"):
        return reader.torchrun
    if reader.has("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"):
        return reader.openmpi
    if reader.has("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"):
        return reader.mvapich
    # mpiexec of MPICH starts its proxies by srun, whose SLURM_PROCID then counts proxies; srun
    # itself sets PMI_RANK for PMI-2 programs, but never MPI_LOCALRANKID.
    if reader.has("PMI_RANK", "PMI_SIZE") and ("MPI_LOCALRANKID" in env or not in_step(env)):
        return reader.mpich
    if in_step(env) and "SLURM_PROCID" in env:
        return reader.slurm
    if reader.has("HOROVOD_RANK", "HOROVOD_SIZE"):
        return reader.horovodrun
    return reader.single


class _Reader:
    """The variables, with errors that name the variable and its value."""

    def __init__(self, env: Mapping[str, str], hostname: str) -> None:
        self.env = env
        self.hostname = hostname

    def has(self, rank: str, size: str) -> bool:
        present = [name for name in (rank, size) if name in self.env]
        if len(present) == 1:
            (one,) = present
            missing = size if one == rank else rank
            raise UsageError(
                f"{one}={self.env[one]} is set, but {missing} is not. A launcher sets both: "
                f"set {missing} as well, or unset {one} to run one worker."
            )
        return bool(present)

    def integer(self, name: str, *, at_least: int = 0) -> int:
        text = self.env[name]
        try:
            value = int(text)
        except ValueError:
            raise UsageError(
                f"{name}={text!r} is not a whole number. Set it to one, or unset it."
            ) from None
        if value < at_least:
            raise UsageError(
                f"{name}={value} is less than {at_least}. Set a number from {at_least} up, "
                "or unset it."
            )
        return value

    def first(self, *names: str) -> str | None:
        """Name the first of these variables that is set."""
        return next((name for name in names if name in self.env), None)

    def place(self, source: Source, names: tuple[str, str, str | None, str | None]) -> World:
        """Build the World from rank, size, local rank and local size; cross ranks are derived."""
        rank_name, size_name, local_rank_name, local_size_name = names
        rank, size = self.integer(rank_name), self.integer(size_name, at_least=1)
        self.within(rank_name, rank, size_name, size)
        local_size = (
            self.integer(local_size_name, at_least=1)
            if local_size_name and local_size_name in self.env
            else None
        )
        local_rank = (
            self.integer(local_rank_name)
            if local_rank_name and local_rank_name in self.env
            else None
        )
        if local_rank is None or local_size is None:
            # Without word on hosts, one host is what is true most often and needs no network.
            local_rank, local_size = rank, size
        else:
            assert local_rank_name is not None
            assert local_size_name is not None
            self.within(local_rank_name, local_rank, local_size_name, local_size)
            if local_size > size:
                raise UsageError(
                    f"{local_size_name}={local_size} is more than {size_name}={size}. "
                    "A host cannot have more workers than the job: correct one of them."
                )
        cross_rank, cross_size = cross_place(rank, size, local_rank, local_size)
        return World(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
            source=source,
            hostname=self.hostname,
            start_timeout_s=self.start_timeout_s(),
            transport=self.transport(),
            inject=self.env.get("FARANDOLE_INJECT", ""),
            overlap=self.overlap(),
            sharded=self.env.get("FARANDOLE_SHARDED", "0") not in ("0", ""),
            pickle_allowed=self.env.get("FARANDOLE_ALLOW_PICKLE") == "1",
            dynamic_sets=self.env.get("HOROVOD_DYNAMIC_PROCESS_SETS", "0") not in ("0", ""),
            address=self.env.get("FARANDOLE_ADDRESS", ""),
            master_addr=self.env.get("MASTER_ADDR"),
            master_port=self.port("MASTER_PORT"),
        )

    def within(self, name: str, value: int, limit_name: str, limit: int) -> None:
        if value >= limit:
            raise UsageError(
                f"{name}={value} does not fit {limit_name}={limit}: ranks go from 0 to "
                f"{limit - 1}. Correct one of them."
            )

    def port(self, name: str) -> int | None:
        if name not in self.env:
            return None
        value = self.integer(name, at_least=0)
        if value > 65535:
            raise UsageError(f"{name}={value} is not a port. Ports go from 0 to 65535.")
        return value

    def overlap(self) -> str:
        value = self.env.get("FARANDOLE_OVERLAP", "auto")
        if value not in ("auto", "on", "off"):
            raise UsageError(f"FARANDOLE_OVERLAP={value!r} is none of auto, on, off. Use one.")
        return value

    def transport(self) -> str:
        value = self.env.get("FARANDOLE_TRANSPORT", "auto").lower()
        if value not in TRANSPORTS:
            raise UsageError(
                f"FARANDOLE_TRANSPORT={value!r} is not a transport. "
                f"Choose from {', '.join(TRANSPORTS)}."
            )
        return value

    def start_timeout_s(self) -> float:
        text = self.env.get(_START_TIMEOUT)
        if text is None:
            return DEFAULT_START_TIMEOUT_S
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            raise UsageError(
                f"{_START_TIMEOUT}={text!r} is not a number of seconds above 0. "
                "Set for example 120, or unset it."
            )
        return value

    def farandole(self) -> World:
        world = self.place(
            "farandole",
            (
                "FARANDOLE_RANK",
                "FARANDOLE_SIZE",
                "FARANDOLE_LOCAL_RANK",
                "FARANDOLE_LOCAL_SIZE",
            ),
        )
        cross = {}
        if self.has("FARANDOLE_CROSS_RANK", "FARANDOLE_CROSS_SIZE"):
            cross = {
                "cross_rank": self.integer("FARANDOLE_CROSS_RANK"),
                "cross_size": self.integer("FARANDOLE_CROSS_SIZE", at_least=1),
            }
            self.within(
                "FARANDOLE_CROSS_RANK",
                cross["cross_rank"],
                "FARANDOLE_CROSS_SIZE",
                cross["cross_size"],
            )
        return _with(
            world,
            **cross,
            hostname=self.env.get("FARANDOLE_HOSTNAME", self.hostname),
            hosts=tuple(dict.fromkeys(self.rank_hosts())),
            rank_hosts=self.rank_hosts(),
            job_id=self.env.get("FARANDOLE_JOB", ""),
            board=self.env.get("FARANDOLE_BOARD"),
        )

    def rank_hosts(self) -> tuple[str, ...]:
        """Read `n1:2,n2:2`: the host of each rank, which are numbered host by host."""
        names: list[str] = []
        for part in self.env.get("FARANDOLE_HOSTS", "").split(","):
            name, _, count = part.rpartition(":")
            names += [name] * (int(count) if count.isdecimal() else 0)
        return tuple(names)

    def torchrun(self) -> World:
        world = self.place("torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
        if self.first("LOCAL_RANK", "LOCAL_WORLD_SIZE") is None and not is_loopback(
            world.master_addr
        ):
            # torch's env:// convention by hand, across hosts: one worker on each.
            world = _with(
                world, local_rank=0, local_size=1, cross_rank=world.rank, cross_size=world.size
            )
        return _with(
            world,
            job_id=self.env.get("TORCHELASTIC_RUN_ID", ""),
            agent_store=self.env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        )

    def openmpi(self) -> World:
        prefix = "OMPI_COMM_WORLD_"
        world = self.place(
            "openmpi",
            (f"{prefix}RANK", f"{prefix}SIZE", f"{prefix}LOCAL_RANK", f"{prefix}LOCAL_SIZE"),
        )
        name = self.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid")
        return _with(world, job_id=self.env[name] if name else "")

    def mpich(self) -> World:
        return self.place("mpich", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"))

    def mvapich(self) -> World:
        prefix = "MV2_COMM_WORLD_"
        return self.place(
            "mpich",
            (f"{prefix}RANK", f"{prefix}SIZE", f"{prefix}LOCAL_RANK", f"{prefix}LOCAL_SIZE"),
        )

    def slurm(self) -> World:
        size_name = self.first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
        if size_name is None:
            raise UsageError(
                f"SLURM_PROCID={self.env['SLURM_PROCID']} is set, but SLURM_NTASKS is not. "
                "Start the workers with srun, which sets both."
            )
        world = self.place("slurm", ("SLURM_PROCID", size_name, None, None))
        hosts = slurm_hosts(self.env)
        tasks = tasks_per_node(self.env)
        node = self.integer("SLURM_NODEID") if "SLURM_NODEID" in self.env else 0
        local_rank = self.integer("SLURM_LOCALID") if "SLURM_LOCALID" in self.env else world.rank
        if tasks:
            if sum(tasks) != world.size:
                raise UsageError(
                    f"SLURM_STEP_TASKS_PER_NODE gives {sum(tasks)} tasks, but "
                    f"{size_name}={world.size}. Start the workers with srun, which sets both."
                )
            if node >= len(tasks):
                raise UsageError(
                    f"SLURM_NODEID={node} does not fit the {len(tasks)} nodes of "
                    "SLURM_STEP_TASKS_PER_NODE. Start the workers with srun, which sets both."
                )
            local_size = tasks[node]
            if local_rank >= local_size:
                raise UsageError(
                    f"SLURM_LOCALID={local_rank} does not fit the {local_size} tasks that "
                    f"SLURM_STEP_TASKS_PER_NODE gives node {node}. Start the workers with srun."
                )
            beside = [n for n, count in enumerate(tasks) if count > local_rank]
            cross_rank, cross_size = beside.index(node), len(beside)
        elif len(hosts) > 1:
            raise UsageError(
                f"SLURM gave this step {len(hosts)} nodes, but SLURM_STEP_TASKS_PER_NODE is not "
                "set. Start the workers with srun, which sets it."
            )
        else:
            local_rank, local_size, cross_rank, cross_size = world.rank, world.size, 0, 1
        return _with(
            world,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
            hostname=self.env.get("SLURMD_NODENAME", self.hostname),
            hosts=hosts,
            job_id=f"{self.env.get('SLURM_JOB_ID', '')}.{self.env['SLURM_STEP_ID']}",
            master_addr=world.master_addr or (hosts[0] if hosts else None),
        )

    def horovodrun(self) -> World:
        world = self.place(
            "horovodrun",
            ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
        )
        return _with(
            world,
            hostname=self.env.get("HOROVOD_HOSTNAME", self.hostname),
            job_id=self.env.get("HOROVOD_GLOO_RENDEZVOUS_PORT", ""),
        )

    def single(self) -> World:
        return World(
            rank=0,
            size=1,
            local_rank=0,
            local_size=1,
            cross_rank=0,
            cross_size=1,
            source="single",
            hostname=self.hostname,
            start_timeout_s=self.start_timeout_s(),
            transport=self.transport(),
            overlap=self.overlap(),
            sharded=self.env.get("FARANDOLE_SHARDED", "0") not in ("0", ""),
            pickle_allowed=self.env.get("FARANDOLE_ALLOW_PICKLE") == "1",
            dynamic_sets=self.env.get("HOROVOD_DYNAMIC_PROCESS_SETS", "0") not in ("0", ""),
        )


class Place(NamedTuple):
    """Where a rank is when ranks are numbered host by host."""

    host: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def place_among(rank: int, counts: Sequence[int]) -> Place:
    """Return a rank's place, given how many ranks each host has."""
    first = 0
    for host, count in enumerate(counts):
        local = rank - first
        if local < count:
            # The hosts that have a worker with this local rank.
            beside = [number for number, each in enumerate(counts) if each > local]
            return Place(host, local, count, beside.index(host), len(beside))
        first += count
    raise UsageError(f"There is no rank {rank} among {first}.")


def cross_place(rank: int, size: int, local_rank: int, local_size: int) -> tuple[int, int]:
    """Derive host number and host count from ranks, for launchers that do not tell them.

    Launchers place ranks by slot (0 1 | 2 3) or by node (0 2 | 1 3); equal hosts are assumed.
    """
    hosts = -(-size // local_size)
    if rank % local_size == local_rank:
        return rank // local_size, hosts
    return rank % hosts, hosts


def is_loopback(host: str | None) -> bool:
    """Say whether a host name means this machine's loopback interface."""
    return host is None or host in _LOOPBACK or host.startswith("127.")


def _with(world: World, **changes: object) -> World:
    from dataclasses import replace

    return replace(world, **changes)  # type: ignore[arg-type]


# After how long a stalled operation is reported, and after how long it ends the job.

WARNING = "FARANDOLE_STALL_WARNING"
SHUTDOWN = "FARANDOLE_STALL_SHUTDOWN"
_HOROVODS = {
    WARNING: "HOROVOD_STALL_CHECK_TIME_SECONDS",
    SHUTDOWN: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
}
_FLAGS = {WARNING: "--stall-warning", SHUTDOWN: "--stall-shutdown"}
_DISABLED = "HOROVOD_STALL_CHECK_DISABLE"
# Horovod's; an epoch's validation on one rank may well take that long.
DEFAULT_WARNING_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StallTimes:
    """When to speak up."""

    warning_s: float = DEFAULT_WARNING_S
    """Seconds until a report; infinite when there is to be none."""
    shutdown_s: float = math.inf
    """Seconds until the job ends; infinite when it is to go on waiting."""


def read_stall_times(
    environ: Mapping[str, str], given: Mapping[str, str] | None = None
) -> StallTimes:
    """Read Farandole's variables, and Horovod's where those are not set; 0 means never.

    Args:
        environ: The environment.
        given: What flags say in the place of a variable, by its name.

    Raises:
        UsageError: A variable is no number of seconds, or the job would end before the report.
    """
    warning_name, warning_s = _read(environ, WARNING, given or {})
    shutdown_name, shutdown_s = _read(environ, SHUTDOWN, given or {})
    if shutdown_s is None:
        shutdown_s = math.inf
    if warning_s is None:
        # Who wants the end after 10 s wants to hear why.
        warning_s = min(DEFAULT_WARNING_S, shutdown_s)
        if environ.get(_DISABLED, "0").lower() not in ("", "0", "false"):
            warning_s = math.inf
    elif warning_s != math.inf and shutdown_s <= warning_s:
        raise UsageError(
            f"{shutdown_name} would end the job before {warning_name} reports why. Give the end "
            "more seconds than the report."
        )
    return StallTimes(warning_s=warning_s, shutdown_s=shutdown_s)


def _read(
    environ: Mapping[str, str], own: str, given: Mapping[str, str]
) -> tuple[str, float | None]:
    """Return how it was said, and the seconds; None where it was not."""
    name = own if environ.get(own) else _HOROVODS[own]
    text = given.get(own, environ.get(name))
    said = f"{_FLAGS[own]} {text}" if own in given else f"{name}={text}"
    if not text:
        return said, None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise UsageError(f"{said}: give a number of seconds from 0 up, for example 60.")
    return said, value or math.inf

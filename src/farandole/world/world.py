"""Who am I: one worker's place among all workers, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    pickle_allowed: bool = False
    """FARANDOLE_ALLOW_PICKLE=1: objects from other hosts may be unpickled."""
    dynamic_sets: bool = False
    """HOROVOD_DYNAMIC_PROCESS_SETS=1: process sets may be added and removed after init()."""
    address: str = ""
    """FARANDOLE_ADDRESS: where workers of other hosts reach this one; "" to find it by routing."""
    board: str | None = None
    """Path of the launcher's bulletin board; None when another launcher started this worker."""

    @property
    def allow_pickle(self) -> bool:
        """Say whether objects that are not plain data may travel between the workers."""
        return self.one_host or self.pickle_allowed

    @property
    def one_host(self) -> bool:
        """Say whether all workers run on this host."""
        return self.local_size == self.size

"""Tables of what each launcher sets, and what it means."""

from __future__ import annotations

import os

import pytest

from farandole.errors import UsageError
from farandole.world.environment import (
    DEFAULT_START_TIMEOUT_S,
    cross_place,
    is_loopback,
    read_world,
    scaled_start_timeout_s,
)

PLACE = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
FARANDOLE = {
    "FARANDOLE_RANK": "1",
    "FARANDOLE_SIZE": "2",
    "FARANDOLE_LOCAL_RANK": "1",
    "FARANDOLE_LOCAL_SIZE": "2",
    "FARANDOLE_CROSS_RANK": "0",
    "FARANDOLE_CROSS_SIZE": "1",
    "FARANDOLE_JOB": "abc",
    "FARANDOLE_BOARD": "/proc/1/fd/3",
    "TORCHELASTIC_RUN_ID": "abc",
    "RANK": "1",
    "WORLD_SIZE": "2",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-n1-99@1",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
MVAPICH = {
    "MV2_COMM_WORLD_RANK": "2",
    "MV2_COMM_WORLD_SIZE": "4",
    "MV2_COMM_WORLD_LOCAL_RANK": "0",
    "MV2_COMM_WORLD_LOCAL_SIZE": "2",
}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "5",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "n[1-2],gpu12",
    "SLURMD_NODENAME": "n2",
}
HOROVODRUN = {
    "HOROVOD_RANK": "1",
    "HOROVOD_SIZE": "2",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "0",
    "HOROVOD_HOSTNAME": "h9",
}
BATCH_SCRIPT = {
    "SLURM_JOB_ID": "77",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
}


@pytest.mark.parametrize(
    ("environ", "source", "place"),
    [
        ({}, "single", (0, 1, 0, 1, 0, 1)),
        (FARANDOLE, "farandole", (1, 2, 1, 2, 0, 1)),
        ({"FARANDOLE_RANK": "1", "FARANDOLE_SIZE": "3"}, "farandole", (1, 3, 1, 3, 0, 1)),
        (TORCHRUN, "torchrun", (3, 4, 1, 2, 1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "torchrun", (0, 1, 0, 1, 0, 1)),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
            "torchrun",
            (1, 2, 1, 2, 0, 1),
        ),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"},
            "torchrun",
            (1, 2, 0, 1, 1, 2),
        ),
        (OPENMPI, "openmpi", (5, 6, 1, 2, 2, 3)),
        (HYDRA, "mpich", (1, 2, 1, 2, 0, 1)),
        ({"PMI_RANK": "0", "PMI_SIZE": "3"}, "mpich", (0, 3, 0, 3, 0, 1)),
        (MVAPICH, "mpich", (2, 4, 0, 2, 1, 2)),
        (SLURM, "slurm", (2, 5, 0, 2, 1, 3)),
        (SLURM | {"SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, "slurm", (3, 5, 1, 2, 1, 2)),
        (
            SLURM | {"SLURM_PROCID": "4", "SLURM_NODEID": "2"},
            "slurm",
            (4, 5, 0, 1, 2, 3),
        ),
        (
            {"SLURM_STEP_ID": "3", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
            "slurm",
            (1, 2, 1, 2, 0, 1),
        ),
        (HOROVODRUN, "horovodrun", (1, 2, 1, 2, 0, 1)),
        # A batch script is one process, whatever the job was given.
        (BATCH_SCRIPT, "single", (0, 1, 0, 1, 0, 1)),
        (BATCH_SCRIPT | {"SLURM_STEP_ID": "batch"}, "single", (0, 1, 0, 1, 0, 1)),
        (BATCH_SCRIPT | {"SLURM_STEP_ID": "4294967291"}, "single", (0, 1, 0, 1, 0, 1)),
        # The nearest launcher wins.
        (SLURM | TORCHRUN, "torchrun", (3, 4, 1, 2, 1, 2)),
        (SLURM | OPENMPI, "openmpi", (5, 6, 1, 2, 2, 3)),
        (SLURM | HYDRA, "mpich", (1, 2, 1, 2, 0, 1)),
        (SLURM | {"PMI_RANK": "2", "PMI_SIZE": "5"}, "slurm", (2, 5, 0, 2, 1, 3)),
        (SLURM | FARANDOLE, "farandole", (1, 2, 1, 2, 0, 1)),
        (OPENMPI | HOROVODRUN, "openmpi", (5, 6, 1, 2, 2, 3)),
        (FARANDOLE | TORCHRUN, "torchrun", (3, 4, 1, 2, 1, 2)),
    ],
)
def test_each_launcher_is_understood(
    environ: dict[str, str], source: str, place: tuple[int, ...]
) -> None:
    world = read_world(environ, hostname="here")
    assert world.source == source
    assert tuple(getattr(world, name) for name in PLACE) == place


def test_what_each_launcher_adds() -> None:
    farandole = read_world(FARANDOLE)
    assert (farandole.job_id, farandole.board) == ("abc", "/proc/1/fd/3")
    torchrun = read_world(TORCHRUN)
    assert (torchrun.master_addr, torchrun.master_port, torchrun.agent_store) == ("n1", 29500, True)
    slurm = read_world(SLURM)
    assert slurm.hosts == ("n1", "n2", "gpu12")
    assert (slurm.hostname, slurm.job_id, slurm.master_addr) == ("n2", "77.0", "n1")
    assert read_world(HOROVODRUN).hostname == "h9"
    assert read_world(OPENMPI).job_id == "prterun-n1-99@1"
    assert read_world({}, hostname="here").hostname == "here"


def test_settings_hold_under_every_launcher() -> None:
    settings = {"FARANDOLE_TRANSPORT": "GLOO", "FARANDOLE_START_TIMEOUT": "7.5"}
    for environ in ({}, FARANDOLE, TORCHRUN, OPENMPI, HYDRA, MVAPICH, SLURM, HOROVODRUN):
        world = read_world(environ | settings)
        assert (world.transport, world.start_timeout_s) == ("gloo", 7.5)
        assert read_world(environ | settings, cores=1).start_timeout_s == 7.5


def test_ranks_that_share_cores_get_more_time_to_start_under_every_launcher() -> None:
    for environ in ({}, FARANDOLE, TORCHRUN, OPENMPI, HYDRA, MVAPICH, SLURM, HOROVODRUN):
        here = read_world(environ).local_size
        assert read_world(environ, cores=here).start_timeout_s == DEFAULT_START_TIMEOUT_S
        assert read_world(environ, cores=1).start_timeout_s == scaled_start_timeout_s(here, 1)
    assert read_world(SLURM, cores=1).start_timeout_s > DEFAULT_START_TIMEOUT_S


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (FARANDOLE | {"FARANDOLE_RANK": "one"}, "FARANDOLE_RANK='one'"),
        (FARANDOLE | {"FARANDOLE_RANK": "2"}, "FARANDOLE_RANK=2 does not fit FARANDOLE_SIZE=2"),
        (FARANDOLE | {"FARANDOLE_LOCAL_RANK": "9"}, "FARANDOLE_LOCAL_RANK=9"),
        (FARANDOLE | {"FARANDOLE_CROSS_RANK": "1"}, "FARANDOLE_CROSS_RANK=1"),
        (TORCHRUN | {"WORLD_SIZE": "0"}, "WORLD_SIZE=0 is less than 1"),
        (TORCHRUN | {"RANK": "-1"}, "RANK=-1"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "8"}, "LOCAL_WORLD_SIZE=8 is more than WORLD_SIZE=4"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, "MASTER_PORT=70000"),
        ({"RANK": "1"}, "RANK=1 is set, but WORLD_SIZE is not"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is set, but RANK is not"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not"),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2(y)"}, "'2(y)'"),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, "gives 4 tasks, but SLURM_NTASKS=5"),
        (SLURM | {"SLURM_NODEID": "3"}, "SLURM_NODEID=3"),
        (SLURM | {"SLURM_LOCALID": "2"}, "SLURM_LOCALID=2"),
        (SLURM | {"SLURM_STEP_NODELIST": "n[1-"}, "'n[1-'"),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}, "SLURM_NTASKS is not"),
        ({"FARANDOLE_TRANSPORT": "pigeon"}, "auto, shm, gloo, mpi, nccl"),
        ({"FARANDOLE_START_TIMEOUT": "soon"}, "FARANDOLE_START_TIMEOUT='soon'"),
        ({"FARANDOLE_START_TIMEOUT": "nan"}, "FARANDOLE_START_TIMEOUT='nan'"),
    ],
)
def test_bad_values_are_named(environ: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_world(environ)
    assert says in str(caught.value)


def test_cross_place_by_slot_and_by_node() -> None:
    by_slot = [cross_place(rank, 4, rank % 2, 2) for rank in range(4)]
    assert by_slot == [(0, 2), (0, 2), (1, 2), (1, 2)]
    by_node = [cross_place(rank, 6, rank // 2, 3) for rank in range(6)]
    assert by_node == [(0, 2), (1, 2), (0, 2), (1, 2), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), (None, True), ("10.0.0.1", False)],
)
def test_is_loopback(host: str | None, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_step_is_read_from_the_real_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """os.environ takes text only where a dictionary takes anything."""
    for name, value in {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
        "SLURM_NODEID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_STEP_NODELIST": "n[1-2]",
    }.items():
        monkeypatch.setenv(name, value)
    world = read_world(os.environ)
    assert (world.source, world.rank, world.cross_rank) == ("slurm", 1, 1)

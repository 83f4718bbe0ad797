"""Meeting through MPI, and what is said where that cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from farandole.errors import MissingExtraError
from farandole.testing.mpi import mpiexec_argv, why_not
from farandole.world.environment import read_world
from farandole.world.mpi import interfaces, own_address
from farandole.world.rendezvous import connect
from tests.conftest import clean_environ

TWO_HOSTS = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
}

# mpiexec puts both ranks on this host; they are told that each has one of its own.
MEET = """
import os, signal, sys
os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] = "0"
os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1"
from dataclasses import replace
from farandole.world import connect, read_world
world = read_world(os.environ)
world = replace(world, hostname=f"host{world.rank}")
if "late" in sys.argv:
    from mpi4py import MPI
if world.rank == 1 and {"late", "absent"} & set(sys.argv):
    signal.pause()
meeting = connect(world)
for payload in (b"", b"%d" % world.rank, bytes(100_000 * (world.rank + 1))):
    answers = meeting.exchange(payload)
    print([len(answer) for answer in answers], answers[1][:1], flush=True)
print(type(meeting).__name__, meeting.hosts, flush=True)
"""


def mpirun(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    if reason := why_not():
        pytest.skip(reason)
    script = tmp_path / "meet.py"
    script.write_text(MEET)
    return subprocess.run(
        [*mpiexec_argv(2), sys.executable, str(script), *arguments],
        env=clean_environ(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.ranks
def test_ranks_of_several_hosts_meet_through_mpi(tmp_path: Path) -> None:
    done = mpirun(tmp_path)
    lines = [
        "[0, 0] b''",
        "[1, 1] b'1'",
        "[100000, 200000] b'\\x00'",
        "MpiRendezvous ('host0', 'host1')",
    ]
    assert sorted(done.stdout.splitlines()) == sorted(lines * 2)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.ranks
def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    done = mpirun(tmp_path, "late", FARANDOLE_START_TIMEOUT="0.5")
    assert "StartError: rank 1 has not called hvd.init() in time." in done.stderr
    assert done.returncode != 0


@pytest.mark.ranks
def test_a_rank_that_does_not_even_come_to_mpi_ends_the_job(tmp_path: Path) -> None:
    """The others wait inside of MPI_Init, where no error can be raised."""
    done = mpirun(tmp_path, "absent", FARANDOLE_START_TIMEOUT="2")
    assert "in load_mpi" in done.stderr
    assert done.returncode != 0


def alone(code: str, **variables: str) -> str:
    """Run a program that is not under mpiexec, whatever its variables say."""
    if reason := why_not():
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environ(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


CONNECT = "import os; from farandole.world import *; connect(read_world(os.environ))"
OPEN = (
    "from farandole.transport.mpi import MpiTransport; "
    "MpiTransport(0, 2, lambda payload: [payload] * 2)"
)


def test_a_library_of_another_mpirun_is_told_by_its_size() -> None:
    said = alone(CONNECT, **TWO_HOSTS)
    assert "mpirun started 2 workers, but mpi4py has loaded Open MPI v" in said
    assert "alone (size 1)" in said
    assert "MPI4PY_LIBMPI" in said


def test_workers_that_no_mpirun_started_are_told_to_use_it() -> None:
    said = alone(OPEN)
    assert "no mpirun started them" in said
    assert "FARANDOLE_TRANSPORT=mpi mpirun -np 2 python train.py" in said


def test_no_library_is_one_line() -> None:
    said = alone(OPEN, MPI4PY_LIBMPI=os.devnull)
    assert f"cannot load the MPI library that you named (MPI4PY_LIBMPI={os.devnull})" in said
    assert said.endswith("Name the libmpi.so of the mpirun that you use, or unset it.")


def test_a_thread_level_that_is_too_low_is_named() -> None:
    said = alone(OPEN, MPI4PY_RC_THREAD_LEVEL="single")
    assert "MPI_THREAD_SINGLE" in said
    assert "MPI4PY_RC_THREAD_LEVEL" in said


def test_several_hosts_without_mpi4py_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(MissingExtraError, match=r"farandole\[mpi\]"):
        connect(read_world(TWO_HOSTS))


def test_both_mpis_meet_so_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr("farandole.world.mpi.connect_mpi", found.append)
    mpich = {
        "PMI_RANK": "1",
        "PMI_SIZE": "4",
        "MPI_LOCALRANKID": "1",
        "MPI_LOCALNRANKS": "2",
    }
    connect(read_world(TWO_HOSTS))
    connect(read_world(mpich))
    assert [world.source for world in found] == ["openmpi", "mpich"]


MINE = [IPv4Interface("172.17.0.1/16"), IPv4Interface("10.1.0.5/24"), IPv4Interface("10.2.0.5/24")]


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        (["172.17.0.1", "10.2.0.6"], "10.2.0.5"),
        (["172.17.0.1", "10.1.0.9", "10.2.0.9"], "10.1.0.5"),
        (["172.17.0.1"], ""),
        ([], ""),
    ],
    ids=["shared network", "first of two", "only a bridge that both have", "none"],
)
def test_the_address_is_of_a_network_that_both_hosts_have(theirs: list[str], found: str) -> None:
    assert own_address(MINE, "no-such-host.invalid", theirs) == found


def test_loopback_is_no_interface_to_others() -> None:
    assert not [each for each in interfaces() if each.ip.is_loopback]

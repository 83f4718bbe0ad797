"""MPI passes the conformance tests under a real mpiexec, to the same bits as shared memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from farandole.errors import PeerDiedError
from farandole.testing import FakeWorld, Member
from farandole.testing.hosts import NamespaceHosts
from farandole.testing.mpi import MpiWorld, mpiexec_argv, why_not
from farandole.testing.shaped import why_not as no_namespaces
from farandole.transport import mpi
from farandole.transport.protocol import Buffer, Transport
from farandole.transport.reduction import Reduction
from tests.conftest import clean_environ
from tests.transport.conformance import TransportConformance, drive, open_transport, sized


def open_mpi(member: Member) -> Transport:
    # Several windows for what is large in these tests.
    mpi.WINDOW_BYTES = 200_000
    return mpi.MpiTransport(member.rank, member.size, member.exchange)


@pytest.mark.ranks
@sized((3,))
class TestMpiTransport(TransportConformance):
    opener = staticmethod(open_mpi)

    @pytest.fixture(scope="class")
    @classmethod
    def world(cls, request: pytest.FixtureRequest) -> Iterator[FakeWorld]:
        if reason := why_not():
            pytest.skip(reason)
        with MpiWorld(request.param) as world:
            world.run(open_transport, cls.opener)
            yield world
            world.run(lambda member: member.state["transport"].close())

    def test_some_ranks_can_have_one_of_their_own(self, world: FakeWorld) -> None:
        """As one rank per host does; its ranks are numbered anew."""
        assert world.run(sum_of_two) == [None] * (world.size - 2) + [3.0, 3.0]

    def test_a_rank_that_leaves_is_named(self, world: FakeWorld) -> None:
        assert "rank 1" in world.run(miss_rank_1)[0]


def sum_of_two(member: Member) -> float | None:
    """Let the last two ranks, in the opposite order, add 1 and 2."""
    last = [member.size - 1, member.size - 2]

    def among(payload: bytes) -> list[bytes]:
        answers = member.exchange(payload)
        return [answers[rank] for rank in last]

    if member.rank not in last:
        # The communicator's exchange, and the wire's.
        for _ in range(2):
            member.exchange(b"")
        return None
    rank = last.index(member.rank)
    transport = mpi.MpiTransport(rank, 2, among)
    data = np.array([rank + 1.0])
    drive(transport.allreduce(Buffer(data, "float64"), Buffer(data, "float64"), Reduction()))
    transport.close()
    return float(data[0])


def miss_rank_1(member: Member) -> str:
    transport = mpi.MpiTransport(member.rank, member.size, member.exchange)
    data = np.ones(10, np.float32)
    buffer = Buffer(data, "float32")
    drive(transport.allreduce(buffer, buffer, Reduction()))
    if member.rank == 1:
        transport.close()
        return ""
    said = ""
    try:
        for _ in transport.allreduce(buffer, buffer, Reduction()):
            transport.link.receive()
            transport.check_peers()
    except PeerDiedError as error:
        said = str(error)
    transport.close()
    return said


# Without torch: this is about MPI, and torch takes seconds to import.
SCRIPT = """
import os, platform, sys
if "hosts" in sys.argv:
    # mpiexec puts all on this host; they are told that two at a time have one.
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    os.environ |= {"OMPI_COMM_WORLD_LOCAL_RANK": f"{rank % 2}", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    platform.node = lambda: f"host{rank // 2}"
from farandole.engine import context
context.init()
engine = context.current().engine
print(engine.transport.name, [answer.decode() for answer in engine.exchange(b"%d" % engine.rank)])
sys.stdout.flush()
if engine.rank == 1 and "fail" in sys.argv:
    raise RuntimeError("out of ideas")
if "fail" in sys.argv:
    engine.exchange(b"", "never")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    if reason := why_not():
        pytest.skip(reason)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def mpirun(
    script: Path, *arguments: str, ranks: int = 2, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*mpiexec_argv(ranks), sys.executable, str(script), *arguments],
        env=clean_environ(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.ranks
def test_a_script_under_mpiexec_asks_for_it_by_a_variable(script: Path) -> None:
    done = mpirun(script, FARANDOLE_TRANSPORT="mpi")
    assert done.stdout.splitlines() == ["mpi ['0', '1']"] * 2
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.ranks
def test_hosts_with_several_ranks_have_mpi_between_them(script: Path) -> None:
    variables = {"FARANDOLE_TRANSPORT": "mpi", "FARANDOLE_ADDRESS": "127.0.0.1"}
    done = mpirun(script, "hosts", ranks=4, **variables)
    assert done.stdout.splitlines() == ["hierarchical ['0', '1', '2', '3']"] * 4
    assert "4 workers on 2 hosts: shared memory inside of each, mpi between them" in done.stderr
    assert done.returncode == 0


@pytest.mark.ranks
def test_mpirun_over_two_hosts(script: Path, tmp_path: Path) -> None:
    """Network namespaces with names of their own; only what mpirun says tells them apart."""
    if reason := no_namespaces():
        pytest.skip(f"{reason} (CI runs it as root)")
    with NamespaceHosts(2, tmp_path) as hosts:
        agent = remote_shell_with_names(hosts, tmp_path)
        argv = [*mpiexec_argv(4), "--prtemca", "plm_ssh_agent", str(agent), "--host", hosts.flag(2)]
        done = subprocess.run(
            hosts.command([*argv, "-x", "FARANDOLE_TRANSPORT", sys.executable, str(script)]),
            env=clean_environ(FARANDOLE_TRANSPORT="mpi"),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["hierarchical ['0', '1', '2', '3']"] * 4
        said = "4 workers on 2 hosts: shared memory inside of each, mpi between them"
        assert f"{said}; the network is reached by eth0 ({hosts.names[0]})." in done.stderr
        assert [hosts.processes(number) for number in range(2)] == [[], []]


def remote_shell_with_names(hosts: NamespaceHosts, folder: Path) -> Path:
    """Write a remote shell for mpirun: namespaces of these hosts share this machine's name."""
    named = folder / "named"
    named.write_text('#!/bin/sh\nhostname "node${1##*.}"\nexec sh -c "$REMOTE"\n')
    agent = folder / "agent"
    agent.write_text(
        '#!/bin/sh\nhost=$1\nshift\nexport REMOTE="$*"\n'
        f'exec {hosts.rsh} "$host" "exec unshare --uts {named} $host"\n'
    )
    for file in (named, agent):
        file.chmod(0o700)
    return agent


@pytest.mark.ranks
def test_a_rank_that_fails_ends_the_job(script: Path) -> None:
    """The other one waits for it, and so would MPI_Finalize."""
    done = mpirun(script, "fail", FARANDOLE_TRANSPORT="mpi")
    assert "RuntimeError: out of ideas" in done.stderr
    assert done.returncode != 0

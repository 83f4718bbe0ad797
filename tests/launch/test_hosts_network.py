"""Workers on hosts with a network of their own: training, and what a cut link leads to."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole.study.read import read_rank
from farandole.testing.hosts import NamespaceHosts
from farandole.testing.shaped import why_not
from tests.conftest import clean_environ, cli_argv, eventually

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(bool(why_not()), reason=f"namespaces as hosts: {why_not()}"),
]

TRAIN = """
import os
import torch
import torch.distributed as dist
import farandole.torch as hvd
hvd.init()
x = torch.full((1000,), float(hvd.rank() + 1))
assert hvd.allreduce(x, op=hvd.Sum)[0].item() == 10.0
print("hosts", hvd.cross_size(), "local", hvd.local_size())
hvd.shutdown()
dist.init_process_group("gloo")
dist.all_reduce(x)
print("gloo", x[0].item(), os.environ["MASTER_ADDR"], os.environ["GLOO_SOCKET_IFNAME"])
def listening():
    folder = "/proc/self/fd/"
    mine = {os.readlink(folder + fd) for fd in os.listdir(folder) if os.path.lexists(folder + fd)}
    for name in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{name}").readlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                yield fields[1].split(":")[0]
print("listens", *sorted(set(listening())))
dist.barrier()
dist.destroy_process_group()
"""
WAIT = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1], os.environ["RANK"]).touch()
time.sleep(60)
"""
RECORD = """
import os
import farandole
farandole.record(loss=float(os.environ["RANK"]))
"""


REDUCE = """
import sys, time
from pathlib import Path
import torch
import farandole.torch as hvd
sys.excepthook = lambda kind, error, trace: print(time.time(), error, file=sys.stderr)
hvd.init()
x = torch.ones(100_000)
for step in range(10**9):
    hvd.allreduce(x, name="x")
    if step == 3:
        Path(sys.argv[1], str(hvd.rank())).touch()
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceHosts]:
    with NamespaceHosts(2, tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


def start(
    hosts: NamespaceHosts, *arguments: str | Path, rsh: str = "", **variables: str
) -> subprocess.Popen[str]:
    argv = [*cli_argv(), "run", "--rsh", rsh or hosts.rsh, "-H", hosts.flag(2)]
    return subprocess.Popen(
        hosts.command([*argv, *map(str, arguments)]),
        env=clean_environ(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_training_across_hosts(hosts: NamespaceHosts, script: Path) -> None:
    pytest.importorskip("torch")
    script.write_text(TRAIN)
    with start(hosts, script) as head:
        output, errors = head.communicate(timeout=110)
    assert head.returncode == 0, errors
    assert output.count("hosts 2 local 2\n") == 4
    assert output.count(f"gloo 10.0 {hosts.names[0]} eth0\n") == 4
    # Every socket is on the address that leads to the others: 198.51.100.1 and .2 as the kernel
    # writes them.
    heard = {line.partition("listens ")[2] for line in output.splitlines() if "listens" in line}
    assert heard == {"016433C6", "026433C6"}
    assert [hosts.processes(number) for number in range(2)] == [[], []]


def test_a_cut_link_is_a_lost_host(hosts: NamespaceHosts, script: Path, tmp_path: Path) -> None:
    script.write_text(WAIT)
    here = tmp_path / "ranks"
    here.mkdir()
    with start(hosts, script, here) as head:
        eventually(lambda: len(list(here.iterdir())) == 4)
        hosts.cut(1)
        try:
            _, errors = head.communicate(timeout=30)
            eventually(lambda: not hosts.processes(0) and not hosts.processes(1), 30)
        finally:
            hosts.mend(1)
    assert head.returncode == 1
    name = hosts.names[1]
    assert f"farandole: host {name} (ranks 2, 3) was lost: it has not answered for 5 s" in errors


@pytest.mark.soak
def test_a_cut_link_is_noticed_without_agents(
    hosts: NamespaceHosts, script: Path, tmp_path: Path
) -> None:
    """Workers of a plain srun have nobody to look after them: they notice by themselves."""
    pytest.importorskip("torch")
    script.write_text(REDUCE)
    here = tmp_path / "ranks"
    here.mkdir()
    workers = [task(hosts, rank, script, here) for rank in range(4)]
    try:
        eventually(lambda: len(list(here.iterdir())) == 4, 60)
        hosts.cut(1)
        before_s = time.time()
        try:
            said = [worker.communicate(timeout=60)[1] for worker in workers]
        finally:
            hosts.mend(1)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [worker.returncode for worker in workers] == [1] * 4, said
    # Rank 0 tells rank 1 what it has found; ranks 2 and 3 miss rank 0.
    ways = [r"Rank 0 on host \S+ lost its connection to rank [23] on host \S+2:"] * 2
    ways += [rf"Rank {rank} on host \S+2 lost its connection to rank 0 on host" for rank in (2, 3)]
    for text, way in zip(said, ways, strict=True):
        found = re.search(rf"^([0-9.]+) {way}", text, re.MULTILINE)
        assert found is not None, text
        assert float(found[1]) - before_s < 10


def task(hosts: NamespaceHosts, rank: int, *argv: object) -> subprocess.Popen[str]:
    """Start a worker on its host as srun would, two on each."""
    node, local = divmod(rank, 2)
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": "4",
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(node),
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_STEP_NODELIST": ",".join(hosts.names),
        "SLURMD_NODENAME": hosts.names[node],
        "XDG_STATE_HOME": str(argv[-1]) + "-state",
    }
    command = "exec " + shlex.join([sys.executable, *map(str, argv)])
    return subprocess.Popen(
        [*shlex.split(hosts.rsh), hosts.names[node], command],
        env=clean_environ(**slurm, OMP_NUM_THREADS="1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_records_come_from_hosts_that_share_no_folder(
    hosts: NamespaceHosts, script: Path, tmp_path: Path
) -> None:
    script.write_text(RECORD)
    kept, temporary = tmp_path / "kept", tmp_path / "tmp"
    for folder in (kept, temporary):
        folder.mkdir()
    # On the hosts there is another folder under the same name.
    shell = tmp_path / "shell"
    shell.write_text(
        "#!/bin/sh\nexec unshare --mount sh -c "
        f'\'mount -t tmpfs none "$0" && exec {hosts.rsh} "$@"\' {kept} "$@"\n'
    )
    shell.chmod(0o700)
    flags = ("--record", kept, "--timeline", tmp_path / "timeline.json")
    with start(hosts, *flags, script, rsh=str(shell), TMPDIR=str(temporary)) as head:
        _, errors = head.communicate(timeout=60)
    assert head.returncode == 0, errors
    assert "timeline of 4 workers" in errors
    ranks = [read_rank(kept / f"rank-{number}.jsonl") for number in range(4)]
    losses = [[metric.value for metric in rank.metrics] for rank in ranks if rank is not None]
    assert losses == [[0.0], [1.0], [2.0], [3.0]]
    assert len(list(kept.iterdir())) == 4
    assert list(temporary.iterdir()) == []

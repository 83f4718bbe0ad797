"""Many ranks on few cores start, train and end; docs/how-to/ssh.md says how long it takes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from farandole.testing.hosts import NamespaceHosts
from farandole.testing.shaped import why_not
from tests.conftest import clean_environ, cli_argv

TRAIN = """
import time
import torch
import farandole.torch as hvd
hvd.init()
begun = time.time()
model = torch.nn.Linear(8, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for step in range(10):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
print("met", begun, "trained", total, flush=True)
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(why_not()), reason=f"namespaces as hosts: {why_not()}")
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_four_hosts(
    workers: int, tmp_path: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text(TRAIN)
    size = 4 * workers
    with NamespaceHosts(4, tmp_path) as hosts:
        argv = [*cli_argv(), "run", "--rsh", hosts.rsh, "-H", hosts.flag(workers)]
        begin = time.time()
        done = subprocess.run(
            hosts.command([*argv, "--start-timeout", "400", str(script)]),
            env=clean_environ(),
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        total_s = time.time() - begin
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert sum(f"trained {float(size)}" in line for line in lines) == size
        met_s = max(float(line.split()[1]) for line in lines) - begin
        assert [hosts.processes(number) for number in range(4)] == [[]] * 4
    with capsys.disabled():
        print(f"\n{size} ranks on 4 hosts: met after {met_s:.1f} s, ended after {total_s:.1f} s")

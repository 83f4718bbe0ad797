"""Scripts as people have them, launched in every way, and what is recorded of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.recorder.forks import Forks
from tests.recorder.launching import LAUNCHERS, Recorded, environ, launch, read_rank

HOROVOD = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
import farandole
import farandole.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--limit", type=float, default=float("inf"))
parser.add_argument("--norm", choices=("local", "sync"), default="local")
parser.add_argument("--key", default="a secret")
args = parser.parse_args()

def main():
    hvd.init()
    torch.manual_seed(1)
    x = torch.randn(96, 8)
    train = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    batch = farandole.param("batch", 8)
    loader = DataLoader(train, batch_size=batch, sampler=sampler)
    validation = DataLoader(train, batch_size=16)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4),
                                torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_object({"a": 1}, root_rank=0)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            farandole.record(loss=loss, epoch=epoch)
        with torch.no_grad():
            for x, y in validation:
                model(x)
        for x, y in validation:  # without no_grad, as many scripts have it
            model(x)
        farandole.record(val_loss=hvd.allreduce(loss.detach(), name="val"))

main()
"""


def figures(rank: Recorded, name: str) -> list[float]:
    """Return a column of which nothing is missing."""
    found = [value for value in rank.steps()[name] if value is not None]
    assert len(found) == len(rank.steps()[name])
    return found


def check_gradient_times(rank: Recorded, ends_s: list[float]) -> None:
    """Check when gradients were ready, with buckets and without."""
    told = rank.of("buckets")
    assert [line["step"] for line in told] == [n for n in (6, 12, 18) if n < len(ends_s)]
    for line in told:
        assert sum(line["bytes"]) == 49 * 4
        assert ends_s[line["step"] - 1] <= line["ready_s"][0]
        assert line["ready_s"][-1] <= ends_s[line["step"]]


@pytest.mark.ranks
@pytest.mark.parametrize("np", [1, 2])
def test_a_script_for_horovod(tmp_path: Path, forks: Forks, np: int) -> None:
    launched = launch(tmp_path, HOROVOD, np=np, launcher=forks if np == 1 else "farandole")
    assert launched.code == 0, launched.output
    assert len(launched.ranks) == np
    steps = 2 * 96 // np // 8
    for number, rank in enumerate(launched.ranks):
        (begin,) = rank.of("begin")
        assert (begin["rank"], begin["size"]) == (number, np)
        ends_s = figures(rank, "end_s")
        assert len(ends_s) == steps
        assert ends_s == sorted(ends_s)
        assert begin["begin_s"] < ends_s[0]
        assert ends_s[-1] <= rank.end["end_s"]
        # Validation counts neither as data nor as an epoch, with or without no_grad.
        assert figures(rank, "samples") == [8.0] * steps
        assert len(rank.of("epoch")) == 2
        assert all(value > 0 for value in figures(rank, "data_s"))
        assert all(value > 0 for value in figures(rank, "optimizer_s"))
        assert len(rank.metrics("loss")) == steps
        assert [metric["epoch"] for metric in rank.of("metric")][:: steps - 1][:2] == [0.0, 1.0]
        setup = rank.setup
        assert setup["framework"] == "farandole.torch"
        assert (setup["device"], setup["parameters"]) == ("cpu", 8 * 4 + 4 + 4 + 4 + 4 + 1)
        assert (setup["dataset_size"], setup["batch_seen"]) == (96, 8)
        assert setup["params"] == {"lr": 0.01, "norm": "local", "batch": 8}
        # Of four batches, as far as the time for it goes on a crowded machine.
        assert 4 <= len(setup["sample_hashes"]) <= 4 * 8
        (rate,) = rank.of("learning_rate")
        assert (rate["step"], rate["value"]) == (0, 0.01)
        assert rank.end["peak_memory_bytes"] > 1e7
        assert rank.end["stopped"] is False
        check_gradient_times(rank, ends_s)
    assert len({rank.end["weights"] for rank in launched.ranks}) == 1
    assert launched.ranks[0].end["weights"] is not None
    if np == 1:
        assert figures(launched.ranks[0], "communication_s") == [0.0] * steps
        assert set(launched.ranks[0].end["bytes_sent"].values()) == {0}
        return
    first, second = launched.ranks
    assert not set(first.setup["sample_hashes"]) & set(second.setup["sample_hashes"])
    for rank in launched.ranks:
        sent = rank.end["bytes_sent"]
        assert rank.setup["gradient_bytes_per_step"] == 49 * 4
        assert sent["gradients"] == steps * 49 * 4
        # running_mean, running_var and a counter of 8 bytes.
        assert (sent["parameters"], sent["buffers"]) == (49 * 4, 2 * 4 * 4 + 8)
        assert sent["other"] == 2 * 4
        assert sent["objects"] > 0
        assert sent["control"] > 0
        ready_s, done_s, exposed_s, covered_s = (
            figures(rank, name) for name in ("ready_s", "done_s", "exposed_s", "communication_s")
        )
        for n, end_s in enumerate(figures(rank, "end_s")):
            assert ready_s[n] <= done_s[n] <= end_s
            assert exposed_s[n] > 0
            assert done_s[n] - ready_s[n] <= covered_s[n] + 1e-5
    # Nobody's gradients have arrived before everybody's were ready.
    for a, b in zip(figures(first, "done_s"), figures(second, "ready_s"), strict=True):
        assert a >= b


PLAIN = """
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.ranks
def test_a_script_that_averages_nothing(tmp_path: Path, forks: Forks) -> None:
    launched = launch(tmp_path, PLAIN, np=2, launcher=forks)
    assert launched.code == 0, launched.output
    assert [rank.of("begin")[0]["rank"] for rank in launched.ranks] == [0, 1]
    for rank in launched.ranks:
        steps = rank.steps()
        assert len(steps["end_s"]) == 6
        # Without a DataLoader no wait is known, which is said; samples are, from the second step.
        assert set(steps["data_s"]) == {None}
        assert steps["samples"] == [None, *[5.0] * 5]
        assert any("no DataLoader was seen" in note for note in rank.notes)
        assert rank.setup["framework"] == "torch"
        assert rank.end["bytes_sent"]["gradients"] == 0
    first, second = (rank.end["weights"] for rank in launched.ranks)
    assert first != second


MPI = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.ranks
@pytest.mark.skipif(
    not Path(LAUNCHERS["mpirun"][0]).exists(), reason="no mpirun beside this Python"
)
def test_mpirun(tmp_path: Path) -> None:
    launched = launch(tmp_path, MPI, np=2, launcher="mpirun")
    assert launched.code == 0, launched.output
    assert [rank.of("begin")[0]["rank"] for rank in launched.ranks] == [0, 1]
    assert [len(rank.steps()["end_s"]) for rank in launched.ranks] == [3, 3]


ODD = """
import torch
from torch.utils.data import DataLoader, TensorDataset

a, b = (torch.nn.Parameter(torch.ones(3)) for _ in "ab")
first, second = torch.optim.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(12, 3)), batch_size=4, num_workers=2)
for (x,) in loader:                        # two optimizers: 3 steps
    (a * x).sum().backward()
    first.step()
    (b * x).sum().backward()
    second.step()

third = torch.optim.LBFGS([b], max_iter=3)
def closure():
    third.zero_grad()
    loss = (b - 2).square().sum()
    loss.backward()
    import time
    time.sleep(0.05)
    return loss
for _ in range(3):                         # the first is not yet known to lead: 2 steps
    third.step(closure)

scaler = torch.amp.GradScaler("cpu")
for n in range(4):                         # of which one overflows: 3 steps, as above
    first.zero_grad()
    loss = a.sum() * (float("inf") if n == 2 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(first)
    scaler.update()
"""


@pytest.mark.ranks
def test_several_optimizers_closures_and_skipped_updates(tmp_path: Path, forks: Forks) -> None:
    launched = launch(tmp_path, ODD, launcher=forks)
    assert launched.code == 0, launched.output
    (rank,) = launched.ranks
    steps = rank.steps()
    assert len(steps["end_s"]) == 3 + 2 + 3
    assert steps["samples"][:3] == [4.0, 4.0, 4.0]
    # The closure's time, 0.05 s each, is not the optimizer's.
    assert all(value is not None and value < 0.05 for value in steps["optimizer_s"][3:5])
    assert rank.setup["parameters"] == 6
    assert len(rank.of("epoch")) == 1


LONG = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.mark.ranks
def test_kill_leaves_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LONG)
    folder = tmp_path / "recorded"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "train.py")], env=environ(folder, None)
    ) as process:
        path = folder / "rank-0.jsonl"
        eventually(lambda: path.exists() and path.read_text().count('"steps"') >= 2)
        os.kill(process.pid, signal.SIGKILL)
    rank = read_rank(path)
    assert len(rank.of("steps")) >= 2
    assert len(rank.steps()["end_s"]) > 20
    assert rank.of("end") == []

"""Launches that the study ends: at one step on all ranks, with success, without a hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from farandole.recorder.ending import LaunchEndedError, StopLaunch, is_consequence
from farandole.testing.mpi import mpiexec_argv, why_not
from tests.conftest import clean_environ
from tests.recorder.forks import Forks
from tests.recorder.launching import launch

TRAIN = """
import sys, torch
import farandole.torch as hvd
from torch.utils.data import DataLoader, TensorDataset
hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
loader = DataLoader(TensorDataset(torch.randn(4000, 4)), batch_size=2, num_workers={workers})

def train():
    for epoch in range(100000):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

{body}
print("NOT REACHED")
"""

FINALLY = """
try:
    train()
finally:
    print("cleaning up")
    hvd.allreduce(torch.ones(1), name="last")
"""
EXIT_1 = """
try:
    try:
        train()
    finally:
        hvd.barrier()
except Exception as error:
    print("refused:", error)
    sys.exit(1)
"""
STUBBORN = """
for attempt in range(3):
    try:
        train()
    except Exception as error:
        print("CAUGHT", type(error))
    except SystemExit as stop:
        print("attempt", attempt, stop.code)
train()
"""


def script(body: str, workers: int = 0) -> str:
    return TRAIN.format(body=body, workers=workers)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (FINALLY, "cleaning up"),
        (EXIT_1, "refused: The study has ended this launch"),
        (STUBBORN, "attempt 2 0"),
    ],
)
def test_two_ranks_end_at_one_step(tmp_path: Path, forks: Forks, body: str, said: str) -> None:
    stop = {"precision": 0.9, "warmup_steps": 2, "least_steps": 20}
    # A launcher sees a success whatever a script makes of its end: one sees the worst of it.
    launcher = "farandole" if body == EXIT_1 else forks
    launched = launch(tmp_path, script(body), np=2, launcher=launcher, stop=stop)
    assert launched.code == 0, launched.output
    assert "NOT REACHED" not in launched.output
    assert "CAUGHT" not in launched.output
    assert "Traceback" not in launched.output
    assert launched.output.count(said) == 2
    first, second = launched.ranks
    assert len(first.steps()["end_s"]) == len(second.steps()["end_s"]) >= 2 + 20 + 1
    assert first.end["stopped"] is second.end["stopped"] is True
    assert first.end["weights"] == second.end["weights"] is not None


@pytest.mark.ranks
def test_a_number_of_steps_with_loader_processes(tmp_path: Path, forks: Forks) -> None:
    text = script("train()", workers=1)
    launched = launch(tmp_path, text, np=2, launcher=forks, stop={"steps": 7})
    assert launched.code == 0, launched.output
    assert "Traceback" not in launched.output
    assert [len(rank.steps()["end_s"]) for rank in launched.ranks] == [7, 7]


@pytest.mark.ranks
def test_epochs_end_after_what_belongs_to_them(tmp_path: Path, forks: Forks) -> None:
    body = "loader = DataLoader(TensorDataset(torch.randn(20, 4)), batch_size=2)\ntrain()"
    launched = launch(tmp_path, script(body), np=2, launcher=forks, stop={"epochs": 2})
    assert launched.code == 0, launched.output
    for rank in launched.ranks:
        assert len(rank.of("epoch")) == 2
        # Rank 0 sees it in the first step of the third epoch, and lets all make two more.
        assert len(rank.steps()["end_s"]) == 2 * 10 + 1 + 2


DDP = """
import torch
import torch.distributed as dist
from torch.distributed import all_reduce
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
try:
    while True:
        optimizer.zero_grad()
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
finally:
    for call in (dist.barrier, lambda: all_reduce(torch.ones(1))):
        try:
            call()
        except RuntimeError as error:
            print(f"refused: {error}\\n", end="")  # by one write: both ranks share the output
    dist.destroy_process_group()
    dist.barrier()
"""


@pytest.mark.ranks
def test_ddp_under_torchrun(tmp_path: Path) -> None:
    launched = launch(tmp_path, DDP, np=2, launcher="torchrun", stop={"steps": 5})
    assert launched.code == 0, launched.output
    assert launched.output.count("refused: The study has ended this launch") == 4
    assert "Traceback" not in launched.output
    assert [len(rank.steps()["end_s"]) for rank in launched.ranks] == [5, 5]
    assert [rank.of("begin")[0]["rank"] for rank in launched.ranks] == [0, 1]
    for rank in launched.ranks:
        assert rank.end["stopped"] is True
        assert rank.setup["framework"] == "ddp"
        # Four weights and a bias in float32, in every step.
        assert rank.end["bytes_sent"]["gradients"] == 5 * 5 * 4


@pytest.mark.ranks
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_mpirun_takes_it_for_a_success() -> None:
    code = (
        "from mpi4py import MPI; from farandole.recorder import ending; ending.end(); "
        "raise ending.StopLaunch"
    )
    done = subprocess.run(
        [*mpiexec_argv(2), sys.executable, "-c", code],
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_consequences_of_the_end() -> None:
    assert is_consequence(LaunchEndedError())
    assert is_consequence(StopLaunch())
    assert not is_consequence(None)
    assert not is_consequence(ValueError())
    with pytest.raises(ValueError, match="closed") as caught:
        on_the_way_out()
    assert is_consequence(caught.value)


def on_the_way_out() -> None:
    try:
        raise StopLaunch
    finally:
        raise ValueError("the file was closed")

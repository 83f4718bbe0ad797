"""Running a script as recorded workers, and reading what they left."""

from __future__ import annotations

from pathlib import Path

from farandole.study.read import read_rank
from farandole.study.records import Rank
from tests.conftest import run_cli
from tests.recorder.forks import Forks
from tests.recorder.launching import launch

# Joins a group from any launcher's variables, trains a small model, and says what it ended with.
TRAIN = """
import os, sys, zlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(10, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(),
        torch.nn.Linear(300, 7),
    )

def batch(step):
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(8, 10, generator=generator), torch.randn(8, 7, generator=generator)

def loss_of(model, step):
    x, y = batch(step)
    return torch.nn.functional.mse_loss(model(x), y)

def crc(model):
    word = 0
    for tensor in model.state_dict().values():
        word = zlib.crc32(tensor.detach().contiguous().numpy().tobytes(), word)
    return word
"""
# Parameters of the model above: weights and biases, float32.
GRADIENT_BYTES = 4 * (10 * 300 + 300 + 300 + 300 + 300 * 7 + 7)
# Running mean and variance in float32, and an int64 that counts batches.
BUFFER_BYTES = 4 * (300 + 300) + 8


def run(
    script: str,
    folder: Path,
    *,
    num_workers: int = 2,
    forks: Forks | None = None,
    flags: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> tuple[list[Rank], str]:
    """Run a script by `farandole run --record`, or in forks that are given.

    Returns:
        What the ranks recorded, and the output.
    """
    if forks is not None:
        ran = launch(folder, TRAIN + script, np=num_workers, launcher=forks, **(env or {}))
        assert ran.code == 0, ran.output
        return ranks(folder / "recorded"), ran.output
    path = folder / "train.py"
    path.write_text(TRAIN + script)
    done = run_cli(
        *("run", "-np", num_workers, "--threads", "1", "--no-tag"),
        *("--record", folder / "record", *flags, path),
        env=env,
        timeout_s=100.0,
    )
    assert done.returncode == 0, done.stderr
    kept = {f"rank-{rank}.jsonl" for rank in range(num_workers)}
    assert {path.name for path in (folder / "record").iterdir()} == kept
    return ranks(folder / "record"), done.stdout


def ranks(record: Path) -> list[Rank]:
    """Read what the ranks of a folder recorded, in rank order."""
    found = [read_rank(path) for path in record.glob("rank-*.jsonl") if "events" not in path.name]
    return sorted((rank for rank in found if rank is not None), key=lambda rank: rank.rank)

"""The training loop that every contestant runs, so that only the communication differs."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from farandole.bench import models
else:
    # By path: `import farandole.bench.models` would bring farandole into the limit's processes.
    _spec = importlib.util.spec_from_file_location(
        "bench_models", Path(__file__).parent.with_name("models.py")
    )
    models = importlib.util.module_from_spec(_spec)
    sys.modules["bench_models"] = models
    _spec.loader.exec_module(models)

LEARNING_RATE = 0.01
_NUM_BATCHES = 4


def build(name: str) -> models.Task:
    """Return the named task, the same weights in every process, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return models.task(name)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of all contestants: SGD without momentum, the least work of its own."""
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def make_step(
    task: models.Task, model: nn.Module, optimizer: torch.optim.Optimizer, *, rank: int
) -> Callable[[int], None]:
    """Return the function that trains one step on this rank's own synthetic data.

    Args:
        model: what to call, which may be a wrapper around the task's network.
    """
    generator = torch.Generator().manual_seed(1000 + rank)
    batches = [
        (
            torch.randn(task.batch, *task.sample_shape, generator=generator),
            torch.randint(task.num_classes, (task.batch,), generator=generator),
        )
        for _ in range(_NUM_BATCHES)
    ]
    criterion = nn.CrossEntropyLoss()

    def step(index: int) -> None:
        inputs, labels = batches[index % _NUM_BATCHES]
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()

    return step


def facts(model: nn.Module) -> dict[str, Any]:
    """Return what tells a training apart: its size, its settings, and its weights' checksum."""
    checksum = 0
    for parameter in model.parameters():
        checksum = zlib.crc32(parameter.detach().contiguous().numpy().tobytes(), checksum)
    return {
        "num_parameters": models.num_parameters(model),
        "optimizer": f"SGD, learning rate {LEARNING_RATE}, no momentum",
        "weights_crc": checksum,
        "num_threads": torch.get_num_threads(),
    }

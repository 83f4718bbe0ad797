"""The tasks in PyTorch, the same for every library: start, all-reduces, training, names."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import models
from .libraries import LEARNING_RATE, connect
from .measure import Task, memory_kb, time_allreduces, time_steps

_NUM_BATCHES = 4
_WARMUP = 10


def start(given: dict[str, Any]) -> dict[str, Any]:
    """Reach the first barrier and say when. Options: library."""
    with connect(given) as world:
        world.barrier()
        reached_s = time.monotonic()
    return {"rank": world.rank, "reached_monotonic_s": reached_s}


def allreduce(given: dict[str, Any]) -> dict[str, Any]:
    """Time blocking all-reduces. Options: library, sizes {series: [elements, repeats]}."""
    torch.set_num_threads(1)
    series = {}
    with connect(given) as world:
        for name, (num_elements, repeats) in given["sizes"].items():
            buffer, reduce = world.buffer(num_elements, name)
            series[name] = time_allreduces(reduce, buffer, num_ranks=world.size, repeats=repeats)
    return {"rank": world.rank, "series": series, "facts": world.facts}


def train(given: dict[str, Any]) -> dict[str, Any]:
    """Time training steps. Options: library, model, warmup, steps, meet (after each step)."""
    with connect(given) as world:
        task = build(given["model"])
        model, optimizer = world.distribute(task.model)
        step = make_step(task, model, optimizer, rank=world.rank)

        def step_and_meet(index: int) -> None:
            step(index)
            world.barrier()

        # All start at once, or the first would train alone on the whole memory bus.
        world.barrier()
        timed = step_and_meet if given["meet"] else step
        times_s = time_steps(timed, warmup=given["warmup"], steps=given["steps"])
        world.barrier()
        memory = memory_kb()
        world.barrier()
        told = facts(task.model)
        if given.get("optimizer") == "adam":
            told["optimizer"] = "Adam"
        found = {"series": {"step": times_s}, "memory_kb": memory, "facts": told}
    return {"rank": world.rank, **found}


def held(given: dict[str, Any]) -> dict[str, Any]:
    """Count the memory that weights and optimizer state take. Options as for `train`.

    What a process has to itself, and its share of what several have; gradients and their buckets
    left out, as far as it is known what they take.
    """
    torch.set_num_threads(1)
    with connect(given) as world:
        # What any training makes a process import and allocate is no weight.
        for make, inputs in ((lambda: nn.Linear(8, 8), 8), (models.wide, 1000)):
            world.barrier()
            before = memory_kb()
            model, optimizer = world.distribute(make())
            for _ in range(given["warmup"] + given["steps"]):
                model(torch.ones(8, inputs)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        world.barrier()
        after = memory_kb()
        world.barrier()
        kinds = ("pss_anon", "pss_shmem")
        found = 1024 * sum(after[kind] - before[kind] for kind in kinds)
        buckets = sum(p.nbytes for p in model.parameters()) if world.size > 1 else 0
    # The host's is the sum; the row takes the largest of the ranks', which are alike.
    return {"rank": world.rank, "series": {"held": [float((found - buckets) * world.size)] * 2}}


def names(given: dict[str, Any]) -> dict[str, Any]:
    """Time agreement on names by Horovod's API.

    Options: library, tensors, steps (of the agreement on a model's parameter tensors), operations,
    elements, rounds (of named all-reduces in opposite orders).
    """
    torch.set_num_threads(1)
    with connect(given) as world:
        series = {
            "agreement": time_agreement(world.hvd, given["tensors"], given["steps"]),
            "opposite": time_opposite(
                world.hvd, given["operations"], given["elements"], given["rounds"]
            ),
        }
    return {"rank": world.rank, "series": series}


def build(name: str) -> Task:
    """Return the named task, the same weights in every process, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return models.task(name)


def random_samples(task: Task, num_samples: int, *, rank: int) -> tuple[Any, Any]:
    """Return a rank's own synthetic inputs and labels."""
    generator = torch.Generator().manual_seed(1000 + rank)
    inputs = torch.randn(num_samples, *task.sample_shape, generator=generator)
    return inputs, torch.randint(task.num_classes, (num_samples,), generator=generator)


def make_step(task: Task, model: Any, optimizer: Any, *, rank: int) -> Callable[[int], None]:
    """Return the function that trains one step; `model` may be a wrapper of the task's network."""
    samples = random_samples(task, _NUM_BATCHES * task.batch, rank=rank)
    inputs, labels = (part.split(task.batch) for part in samples)
    criterion = nn.CrossEntropyLoss()

    def step(index: int) -> None:
        batch = index % _NUM_BATCHES
        optimizer.zero_grad()
        criterion(model(inputs[batch]), labels[batch]).backward()
        optimizer.step()

    return step


def facts(model: nn.Module) -> dict[str, Any]:
    """Return what identifies a training: its size, its settings, and its weights' checksum."""
    checksum = 0
    for parameter in model.parameters():
        checksum = zlib.crc32(parameter.detach().contiguous().numpy().tobytes(), checksum)
    return {
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "optimizer": f"SGD, learning rate {LEARNING_RATE}, no momentum",
        "weights_crc": checksum,
        "num_threads": torch.get_num_threads(),
    }


def time_agreement(hvd: Any, num_tensors: int, steps: int) -> list[float]:
    """Return the seconds of each `synchronize()` of parameters of one number each.

    With so little to move, what is left is to agree on which gradients are there.
    """
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(num_tensors)]
    named = [(f"p{index}", parameter) for index, parameter in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), named)

    def backward(_: int) -> None:
        optimizer.zero_grad()
        (torch.cat(tuple(parameters)) * (hvd.rank() + 1)).sum().backward()
        # Not what waiting for the other's backward takes.
        hvd.barrier()

    times_s = time_steps(
        lambda _: optimizer.synchronize(), warmup=_WARMUP, steps=steps, prepare=backward
    )
    expected = (hvd.size() + 1) / 2
    if any(p.grad is None or p.grad.item() != expected for p in parameters):
        raise SystemExit("the average is wrong")
    return times_s


def time_opposite(hvd: Any, operations: int, elements: int, rounds: int) -> list[float]:
    """Return the seconds of all operations together, in each round."""
    tensors = [torch.ones(elements) for _ in range(operations)]
    named = [(f"t{index}", tensor) for index, tensor in enumerate(tensors)]
    if hvd.rank() % 2:
        named.reverse()

    def fill(_: int) -> None:
        for tensor in tensors:
            tensor.fill_(hvd.rank() + 1)
        hvd.barrier()

    def step(_: int) -> None:
        handles = [hvd.allreduce_async_(one, op=hvd.Average, name=name) for name, one in named]
        for handle in handles:
            hvd.synchronize(handle)

    times_s = time_steps(step, warmup=_WARMUP, steps=rounds, prepare=fill)
    if any(float(tensor[-1]) != (hvd.size() + 1) / 2 for tensor in tensors):
        raise SystemExit("an average is wrong")
    return times_s

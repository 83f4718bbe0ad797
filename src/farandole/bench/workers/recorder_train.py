"""Training as scripts do it, with a DataLoader and a metric per step, recorded and not recorded in
turns. Options: model, warmup, steps.

What recording costs is far below what two launches differ by, so that both are measured in one: the
series "ratio" has one value per pair of neighbouring blocks. Not recorded means that the hooks are
there and find no recorder; a thread's samples, two a second, go on. Some recorded steps are sampled
more closely (gradient noise, times of gradients); their share is part of the ratio.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, TensorDataset

import farandole
import farandole.torch as hvd
from farandole.recorder.recorder import current, paused
from farandole.recorder.settings import RECORD_DIR

if TYPE_CHECKING:
    from farandole.bench.workers import harness, sampled, training
else:
    import harness
    import sampled
    import training

BLOCK_STEPS = 10
SAMPLES = ("noise", "buckets")
"""Kinds of lines that tell of one step each."""


def slowest(values: list[float], name: str) -> list[float]:
    """Return the largest value of any rank, place by place."""
    # Exchanged while not recording, so that the exchange itself is not recorded either.
    with paused():
        everyone: list[float] = hvd.allreduce(
            torch.tensor(values, dtype=torch.float64), op=hvd.Max, name=name
        ).tolist()
    return everyone


def sampled_steps() -> set[int]:
    """Return which of this rank's recorded steps were sampled."""
    recorder = current()
    assert recorder is not None
    recorder.flush()
    path = Path(os.environ[RECORD_DIR], f"rank-{recorder.rank}.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {int(line["step"]) for line in lines if line["kind"] in SAMPLES}


def main() -> None:
    given = harness.options()
    hvd.init()
    task = training.build(given["model"])
    optimizer = hvd.DistributedOptimizer(
        training.sgd(task.model), named_parameters=task.model.named_parameters()
    )
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(1000 + hvd.rank())
    pairs = max(1, given["steps"] // (2 * BLOCK_STEPS))
    num_samples = task.batch * (given["warmup"] + (pairs * 2 + 1) * BLOCK_STEPS)
    samples = TensorDataset(
        torch.randn(num_samples, *task.sample_shape, generator=generator),
        torch.randint(task.num_classes, (num_samples,), generator=generator),
    )
    batches = iter(DataLoader(samples, batch_size=task.batch))
    criterion = torch.nn.CrossEntropyLoss()

    def step(_index: int) -> None:
        inputs, labels = next(batches)
        optimizer.zero_grad()
        loss = criterion(task.model(inputs), labels)
        loss.backward()
        optimizer.step()
        farandole.record(loss=loss)

    def time_block(*, recorded: bool, warmup: int = 0) -> list[float]:
        """Return a block's steps, each on its slowest rank."""
        with nullcontext() if recorded else paused():
            times_s = harness.time_steps(step, warmup=warmup, steps=BLOCK_STEPS)
        return slowest(times_s, "times")

    hvd.barrier()
    time_block(recorded=True, warmup=given["warmup"])
    blocks: dict[bool, list[list[float]]] = {True: [], False: []}
    first_steps = []
    recorder = current()
    assert recorder is not None
    for pair in range(pairs):
        # Now one, now the other goes first, so that a drift of the machine cancels; in an order
        # without a period, which could be that of the samples.
        recorded_first = pair.bit_count() % 2 == 0
        for recorded in (recorded_first, not recorded_first):
            if recorded:
                first_steps.append(recorder.steps)
            blocks[recorded].append(time_block(recorded=recorded))
    found = sampled_steps()
    flags = [
        [float(step in found) for step in range(first, first + BLOCK_STEPS)]
        for first in first_steps
    ]
    flags = [slowest(block, "flags") for block in flags]
    ratios = sampled.ratios(
        blocks[True], blocks[False], [[flag > 0 for flag in block] for block in flags]
    )
    harness.report(
        given, rank=hvd.rank(), series={"ratio": ratios}, facts=training.facts(task.model)
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()

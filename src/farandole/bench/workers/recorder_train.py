"""Training as scripts do it, with a DataLoader and a metric per step, recorded and not recorded in
turns. Options: model, warmup, steps.

What recording costs is far below what two launches differ by, so that both are measured in one: the
series "ratio" has one value per pair of neighbouring blocks. Not recorded means that the hooks are
there and find no recorder; a thread's samples, two a second, go on.
"""

from __future__ import annotations

from contextlib import nullcontext
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, TensorDataset

import farandole
import farandole.torch as hvd
from farandole.recorder.recorder import paused

if TYPE_CHECKING:
    from farandole.bench.workers import harness, training
else:
    import harness
    import training

BLOCK_STEPS = 10


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

    def time_block(*, recorded: bool, warmup: int = 0) -> float:
        """Return the median step of a block, on the slowest rank of each step."""
        with nullcontext() if recorded else paused():
            times_s = harness.time_steps(step, warmup=warmup, steps=BLOCK_STEPS)
        # Exchanged while not recording, so that the exchange itself is not recorded either.
        with paused():
            everyone = hvd.allreduce(torch.tensor(times_s), op=hvd.Max, name="times")
        return float(median(everyone.tolist()))

    hvd.barrier()
    time_block(recorded=True, warmup=given["warmup"])
    ratios = []
    for pair in range(pairs):
        # First one, then the other goes first, so that a drift of the machine cancels.
        order = (True, False) if pair % 2 == 0 else (False, True)
        block_s = {recorded: time_block(recorded=recorded) for recorded in order}
        ratios.append(block_s[True] / block_s[False])
    harness.report(
        given, rank=hvd.rank(), series={"ratio": ratios}, facts=training.facts(task.model)
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()

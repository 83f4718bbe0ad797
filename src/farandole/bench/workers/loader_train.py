"""Training as scripts do it, with a DataLoader and a metric per step; recorded, if the environment
says so. Options: model, warmup, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, TensorDataset

import farandole
import farandole.torch as hvd

if TYPE_CHECKING:
    from farandole.bench.workers import harness, training
else:
    import harness
    import training


def main() -> None:
    given = harness.options()
    hvd.init()
    task = training.build(given["model"])
    optimizer = hvd.DistributedOptimizer(
        training.sgd(task.model), named_parameters=task.model.named_parameters()
    )
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(1000 + hvd.rank())
    num_samples = task.batch * (given["warmup"] + given["steps"])
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

    hvd.barrier()
    times_s = harness.time_steps(step, warmup=given["warmup"], steps=given["steps"])
    hvd.barrier()
    harness.report(
        given, rank=hvd.rank(), series={"step": times_s}, facts=training.facts(task.model)
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()

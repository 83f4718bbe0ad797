"""PyTorch's DistributedDataParallel over Gloo. Options: model, warmup, steps, and the start's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from farandole.bench.workers import gloo, harness, training
else:
    import gloo
    import harness
    import training


def main() -> None:
    given = harness.options()
    task = training.build(given["model"])
    gloo.join(given)
    model = DistributedDataParallel(task.model)
    step = training.make_step(task, model, training.sgd(model), rank=given["rank"])
    dist.barrier()
    times_s = harness.time_steps(step, warmup=given["warmup"], steps=given["steps"])
    dist.barrier()
    memory_kb = harness.memory_kb()
    dist.barrier()
    harness.forbid_farandole()
    harness.report(
        given,
        rank=given["rank"],
        series={"step": times_s},
        memory_kb=memory_kb,
        facts=training.facts(task.model),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

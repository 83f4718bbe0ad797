"""Training by Horovod's recipe. Options: module ("farandole.torch" or "horovod.torch"), model,
warmup, steps."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farandole.bench.workers import harness, training
else:
    import harness
    import training


def main() -> None:
    given = harness.options()
    hvd = importlib.import_module(given["module"])
    hvd.init()
    task = training.build(given["model"])
    optimizer = hvd.DistributedOptimizer(
        training.sgd(task.model), named_parameters=task.model.named_parameters()
    )
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    step = training.make_step(task, task.model, optimizer, rank=hvd.rank())
    hvd.barrier()
    times_s = harness.time_steps(step, warmup=given["warmup"], steps=given["steps"])
    hvd.barrier()
    memory_kb = harness.memory_kb()
    hvd.barrier()
    harness.report(
        given,
        rank=hvd.rank(),
        series={"step": times_s},
        memory_kb=memory_kb,
        facts=training.facts(task.model),
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()

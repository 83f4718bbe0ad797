"""Agreement on names, by Horovod's API, Farandole's or Horovod's own.

Options: module ("farandole.torch" or "horovod.torch"), tensors, steps (of the agreement on a
model's parameter tensors), operations, elements, rounds (of named all-reduces in opposite orders).
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness

_WARMUP = 10


def main() -> None:
    given = harness.options()
    hvd = importlib.import_module(given["module"])
    torch.set_num_threads(1)
    hvd.init()
    series = {
        "agreement": time_agreement(hvd, given["tensors"], given["steps"]),
        "opposite": time_opposite(hvd, given["operations"], given["elements"], given["rounds"]),
    }
    harness.report(given, rank=hvd.rank(), series=series)
    hvd.shutdown()


def time_agreement(hvd: Any, num_tensors: int, steps: int) -> list[float]:
    """Return the seconds of each `synchronize()` of parameters of one number each.

    With so little to move, what is left is to agree on which gradients are there.
    """
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(num_tensors)]
    named = [(f"p{index}", parameter) for index, parameter in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), named)
    times_s = []
    for _ in range(_WARMUP + steps):
        optimizer.zero_grad()
        (torch.cat(tuple(parameters)) * (hvd.rank() + 1)).sum().backward()
        # Not what waiting for the other's backward takes.
        hvd.barrier()
        start_s = time.perf_counter()
        optimizer.synchronize()
        times_s.append(time.perf_counter() - start_s)
        with optimizer.skip_synchronize():
            optimizer.step()
    expected = (hvd.size() + 1) / 2
    if any(p.grad is None or p.grad.item() != expected for p in parameters):
        raise SystemExit("the average is wrong")
    return times_s[_WARMUP:]


def time_opposite(hvd: Any, operations: int, elements: int, rounds: int) -> list[float]:
    """Return the seconds of all operations together, in each round."""
    tensors = [torch.ones(elements) for _ in range(operations)]
    order = list(range(operations))
    if hvd.rank() % 2:
        order.reverse()

    def step(_: int) -> None:
        handles = [
            hvd.allreduce_async_(tensors[index], op=hvd.Average, name=f"t{index}")
            for index in order
        ]
        for handle in handles:
            hvd.synchronize(handle)

    times_s = []
    for index in range(_WARMUP + rounds):
        for tensor in tensors:
            tensor.fill_(hvd.rank() + 1)
        hvd.barrier()
        times_s += harness.time_steps(step, warmup=0, steps=1)
        if any(float(tensor[-1]) != (hvd.size() + 1) / 2 for tensor in tensors):
            raise SystemExit(f"an average of round {index} is wrong")
    return times_s[_WARMUP:]


if __name__ == "__main__":
    main()

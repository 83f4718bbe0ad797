"""Is it right here, too? Values, gradients and speed on the machine at hand, in two minutes.

Nothing was run on a GPU by the authors: this is how somebody who has one finds out.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

_STEPS = 20
_WARM_UP = 5
_BATCH = 32


def check_worker() -> dict[str, Any]:
    """Run all checks as one worker among others; return findings by name ('' means right)."""
    import torch

    import farandole.torch as hvd

    hvd.init()
    device = "cpu"
    if torch.cuda.is_available() and torch.cuda.device_count() >= hvd.local_size():
        torch.cuda.set_device(hvd.local_rank())
        device = f"cuda:{hvd.local_rank()}"
    findings = {
        "device": device,
        "values": _check_values(hvd, device),
        "gradients": _check_gradients(hvd, device),
        "step_ms": _time_steps(hvd, device),
        "ddp_step_ms": _time_ddp(hvd, device),
    }
    hvd.shutdown()
    return findings


def _check_values(hvd: Any, device: str) -> str:
    import torch

    rank, size = hvd.rank(), hvd.size()
    total = size * (size + 1) / 2
    types = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64]
    for dtype in types:
        for count in (1, 1000, 300_001):
            x = torch.full((count,), rank + 1, dtype=dtype, device=device)
            summed = hvd.allreduce(x, op=hvd.Sum)
            if not torch.equal(summed.cpu(), torch.full((count,), total, dtype=dtype)):
                return f"allreduce of {count} x {dtype} is wrong"
            gathered = hvd.allgather(x[: rank + 1])
            if gathered.shape[0] != sum(min(r + 1, count) for r in range(size)):
                return f"allgather of {dtype} is wrong"
            rooted = hvd.broadcast(x, root_rank=size - 1)
            if not bool((rooted == size).all()):
                return f"broadcast of {count} x {dtype} is wrong"
    return ""


def _check_gradients(hvd: Any, device: str) -> str:
    """Compare N workers at batch b with one at batch N b."""
    import torch

    rank, size = hvd.rank(), hvd.size()
    alone, shared = _model(device, torch.float64), _model(device, torch.float64)
    plain = torch.optim.SGD(alone.parameters(), 0.05, momentum=0.9)
    wrapped = hvd.DistributedOptimizer(
        torch.optim.SGD(shared.parameters(), 0.05, momentum=0.9), shared.named_parameters()
    )
    data = torch.Generator().manual_seed(3)
    for _ in range(_STEPS):
        x = torch.randn(size * 4, 784, generator=data, dtype=torch.float64).to(device)
        for model, optimizer, batch in (
            (alone, plain, x),
            (shared, wrapped, x[rank * 4 : rank * 4 + 4]),
        ):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    pairs = zip(alone.parameters(), shared.parameters(), strict=True)
    worst = max(float((a - b).detach().abs().max()) for a, b in pairs)
    return "" if worst < 1e-10 else f"weights are off by {worst:.1e} after {_STEPS} steps"


def _time_steps(hvd: Any, device: str) -> float:
    import torch

    model = _model(device, torch.float32)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
    )
    return _median_step_ms(model, optimizer, device)


def _time_ddp(hvd: Any, device: str) -> float:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from farandole.transport.gloo import let_gloo_settle

    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    model = DistributedDataParallel(_model(device, torch.float32))
    step_ms = _median_step_ms(model, torch.optim.SGD(model.parameters(), 0.01), device)
    let_gloo_settle()
    dist.destroy_process_group()
    return step_ms


def _median_step_ms(model: Any, optimizer: Any, device: str) -> float:
    import torch

    x = torch.randn(_BATCH, 784, device=device)
    times_ms = []
    for _ in range(_WARM_UP + _STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times_ms.append((time.perf_counter() - start) * 1e3)
    return median(times_ms[_WARM_UP:])


def _model(device: str, dtype: Any) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(784, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 10)
    ).to(device, dtype)

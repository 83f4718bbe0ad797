"""What a worker of a calibration runs: rank 0 leaves the figures in a file.

Its argument is a JSON object: `result`, the file; `sizes` in bytes; `budget_s`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

_STREAM_BYTES = 16 << 20
_LEAST_REPEATS, _MOST_REPEATS = 3, 50


class Channel(Protocol):
    """What is measured: a way between this worker and the others."""

    rank: int
    size: int

    def buffer(self, nbytes: int) -> Any:
        """Return zeros of so many bytes."""

    def allreduce(self, buffer: Any) -> None:
        """Add the buffer up over all workers, in place."""

    def pass_on(self, buffer: Any, source: int, target: int) -> None:
        """Send the buffer from one worker to another."""

    def largest(self, value: float) -> float:
        """Return the largest of all workers' values."""

    def close(self) -> None:
        """Leave."""


class FarandoleChannel:
    """Farandole's own operations: shared memory on one host. Needs no torch."""

    def __init__(self) -> None:
        from farandole.engine import context

        context.init()
        self._context = context
        self._engine = context.current().engine
        self.rank, self.size = self._engine.rank, self._engine.size

    def buffer(self, nbytes: int) -> Any:
        """Return zeros of so many bytes."""
        import numpy as np

        return np.zeros(nbytes // 4, np.float32)

    def allreduce(self, buffer: Any) -> None:
        """Add the buffer up over all workers, in place."""
        from farandole.engine.operations import Allreduce
        from farandole.engine.signature import Signature
        from farandole.transport.protocol import Buffer
        from farandole.transport.reduction import Reduction

        how, data = Reduction(), Buffer(buffer, "float32")
        signature = Signature.reducing("allreduce", "float32", buffer.shape, how)
        self._engine.run(f"calibrate.sum.{len(buffer)}", Allreduce(signature, data, data, how))

    def pass_on(self, buffer: Any, source: int, target: int) -> None:
        """Send the buffer from one worker to another; all others get it too."""
        from farandole.engine.operations import Broadcast
        from farandole.engine.signature import Signature
        from farandole.transport.protocol import Buffer

        data = Buffer(buffer, "float32")
        signature = Signature("broadcast", "float32", buffer.shape, root=source)
        name = f"calibrate.pass.{len(buffer)}.{source}"
        self._engine.run(name, Broadcast(signature, data, data))

    def largest(self, value: float) -> float:
        """Return the largest of all workers' values."""
        words = self._engine.exchange(repr(value).encode(), "calibrate.largest")
        return max(float(word) for word in words)

    def close(self) -> None:
        """Leave."""
        self._context.shutdown()


class TorchChannel:
    """torch.distributed's operations, which DDP uses."""

    def __init__(self, backend: str) -> None:
        import torch
        import torch.distributed as dist

        self._device = "cpu"
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            self._device = "cuda"
        dist.init_process_group(backend)
        self._torch, self._dist = torch, dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def buffer(self, nbytes: int) -> Any:
        """Return zeros of so many bytes."""
        return self._torch.zeros(nbytes // 4, device=self._device)

    def allreduce(self, buffer: Any) -> None:
        """Add the buffer up over all workers, in place."""
        self._dist.all_reduce(buffer)
        self._settle()

    def pass_on(self, buffer: Any, source: int, target: int) -> None:
        """Send the buffer from one worker to another."""
        if self.rank == source:
            self._dist.send(buffer, target)
        elif self.rank == target:
            self._dist.recv(buffer, source)
        self._settle()

    def largest(self, value: float) -> float:
        """Return the largest of all workers' values."""
        word = self._torch.tensor([value], device=self._device)
        self._dist.all_reduce(word, op=self._dist.ReduceOp.MAX)
        return float(word.item())

    def close(self) -> None:
        """Leave."""
        self._dist.destroy_process_group()

    def _settle(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()


def measure(channel: Channel, sizes: Sequence[int], budget_s: float) -> dict[str, Any]:
    """Measure latency, stream and all-reduces; every worker calls it alike."""
    share_s = budget_s / (len(sizes) + 2)

    def there_and_back(buffer: Any) -> None:
        channel.pass_on(buffer, 0, 1)
        channel.pass_on(buffer, 1, 0)

    word, stream = channel.buffer(4), channel.buffer(_STREAM_BYTES)
    latency_s = _median_s(channel, partial(there_and_back, word), share_s) / 2
    stream_s = _median_s(channel, partial(there_and_back, stream), share_s) / 2
    sweep = []
    for nbytes in sizes:
        buffer = channel.buffer(nbytes)
        sweep.append((nbytes, _median_s(channel, partial(channel.allreduce, buffer), share_s)))
    return {
        "latency_s": latency_s,
        "stream_bytes": _STREAM_BYTES,
        "stream_s": stream_s,
        "allreduce": sweep,
    }


def _median_s(channel: Channel, action: Callable[[], None], share_s: float) -> float:
    """Return the median time of an action, repeated for about so long by all workers alike."""
    action()
    begin_s = time.perf_counter()
    action()
    once_s = channel.largest(time.perf_counter() - begin_s)
    repeats = min(_MOST_REPEATS, max(_LEAST_REPEATS, int(share_s / max(once_s, 1e-9))))
    times_s = []
    for _ in range(repeats):
        begin_s = time.perf_counter()
        action()
        times_s.append(time.perf_counter() - begin_s)
    return statistics.median(times_s)


def main() -> None:
    """Measure as ordered, and leave the figures."""
    order = json.loads(sys.argv[1])
    transport = os.environ.get("FARANDOLE_TRANSPORT", "auto")
    channel: Channel
    if transport in ("gloo", "nccl"):
        channel = TorchChannel(transport)
    else:
        channel = FarandoleChannel()
    found = measure(channel, order["sizes"], order["budget_s"])
    if channel.rank == 0:
        result = Path(order["result"])
        unfinished = result.with_suffix(".part")
        unfinished.write_text(json.dumps(found))
        unfinished.rename(result)
    channel.close()


if __name__ == "__main__":
    main()

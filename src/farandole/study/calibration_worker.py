"""What the workers of a calibration run.

`link ORDER` measures what connects them, and rank 0 leaves the figures in a file; ORDER is a JSON
object: `result`, the file; `sizes` in bytes; `budget_s`. `copy COMMAND ...` runs one of several
copies of a script: a launch of one worker inside of the launch, which sends nothing to anybody.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from farandole.launch.call import CALL_FD, RESULT_FD
from farandole.launch.plan import count_gpus
from farandole.recorder.recorder import APART, PARAMS, RECORD_DIR, STOP

_STREAM_BYTES = 16 << 20
_LEAST_REPEATS, _MOST_REPEATS = 3, 50

Action = Callable[[], object]


class Channel:
    """What is measured, a way between workers: Farandole's own gradient buckets, without torch."""

    def __init__(self) -> None:
        from farandole.engine import context

        context.init()
        self._engine = context.current().engine
        self.rank = self._engine.rank
        self.close: Action = context.shutdown

    def allreduce(self, nbytes: int) -> Action:
        """Prepare an all-reduce of so many bytes; every call of the result makes one."""
        import numpy as np

        from farandole.engine.buckets import FULL, open_buckets
        from farandole.transport.reduction import SUM

        engine, note, steps = self._engine, np.zeros(1, np.uint8), count(1)
        buckets = open_buckets(engine, f"calibrate.{nbytes}", [(nbytes // 4, "float32")], len(note))
        buckets.arrays[0][...] = 0
        return lambda: engine.wait(buckets.submit(0, next(steps), SUM, FULL, note))

    def there_and_back(self, nbytes: int) -> Action:
        """Prepare moving so many bytes from worker 0 to 1, and then from 1 to 0.

        In shared memory, what is large is taken out of the other's memory, once a word says that it
        is there.
        """
        import numpy as np

        shared = self._engine.transport.eager is not None and nbytes > 4
        data = np.zeros(1 if shared else max(1, nbytes // 4), np.float32)
        if not shared:
            return lambda: (self._broadcast(data, 0), self._broadcast(data, 1))
        from farandole.transport.shm.segment import Fabric

        size, region = self._engine.size, "calibration"
        fabric = Fabric.open(self.rank, size, self._engine.exchange, {region: nbytes})
        theirs = [fabric.array(r, region, 0, nbytes, np.dtype(np.uint8)) for r in range(size)]
        theirs[self.rank][...] = 1
        mine = np.zeros(nbytes, np.uint8)

        def action() -> None:
            for root in (0, 1):
                self._broadcast(data, root)
                if self.rank == 1 - root:
                    np.copyto(mine, theirs[root])

        return action

    def largest(self, value: float) -> float:
        """Return the largest of all workers' values."""
        words = self._engine.exchange(repr(value).encode(), "calibrate.largest")
        return max(float(word) for word in words)

    def _broadcast(self, data: Any, root: int) -> object:
        from farandole.engine.operations import Broadcast
        from farandole.engine.signature import Signature
        from farandole.transport.protocol import Buffer

        buffer = Buffer(data, "float32")
        signature = Signature("broadcast", "float32", data.shape, root=root)
        name = f"calibrate.{len(data)}.from.{root}"
        return self._engine.run(name, Broadcast(signature, buffer, buffer))


class TorchChannel(Channel):
    """torch.distributed's operations, which DDP uses."""

    def __init__(self, backend: str) -> None:
        import torch
        import torch.distributed as dist

        self._device = "cuda" if backend == "nccl" else "cpu"
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend)
        self._torch, self._dist = torch, dist
        self.rank = dist.get_rank()
        self.close = dist.destroy_process_group

    def allreduce(self, nbytes: int) -> Action:
        """Prepare an all-reduce."""
        tensor = self._zeros(nbytes)

        def action() -> None:
            self._dist.all_reduce(tensor)
            self._settle()

        return action

    def there_and_back(self, nbytes: int) -> Action:
        """Prepare two sends."""
        tensor = self._zeros(nbytes)

        def action() -> None:
            for source, target in ((0, 1), (1, 0)):
                if self.rank == source:
                    self._dist.send(tensor, target)
                elif self.rank == target:
                    self._dist.recv(tensor, source)
            self._settle()

        return action

    def largest(self, value: float) -> float:
        """Return the largest of all workers' values."""
        word = self._torch.tensor([value], device=self._device)
        self._dist.all_reduce(word, op=self._dist.ReduceOp.MAX)
        return float(word.item())

    def _zeros(self, nbytes: int) -> Any:
        return self._torch.zeros(max(1, nbytes // 4), device=self._device)

    def _settle(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()


def measure(channel: Channel, sizes: Sequence[int], budget_s: float) -> dict[str, Any]:
    """Measure latency, stream and all-reduces; every worker calls it alike."""
    share_s = budget_s / (len(sizes) + 2)

    def median_s(action: Action) -> float:
        """Return the median time of an action, repeated for about so long by all workers alike."""
        action()
        once_s = channel.largest(_timed_s(action))
        repeats = min(_MOST_REPEATS, max(_LEAST_REPEATS, int(share_s / max(once_s, 1e-9))))
        return statistics.median(_timed_s(action) for _ in range(repeats))

    return {
        "latency_s": median_s(channel.there_and_back(4)) / 2,
        "stream_bytes": _STREAM_BYTES,
        "stream_s": median_s(channel.there_and_back(_STREAM_BYTES)) / 2,
        "allreduce": [(nbytes, median_s(channel.allreduce(nbytes))) for nbytes in sizes],
    }


def _timed_s(action: Action) -> float:
    begin_s = time.perf_counter()
    action()
    return time.perf_counter() - begin_s


def measure_link(order: Mapping[str, Any]) -> None:
    """Measure as ordered, and leave the figures."""
    transport = os.environ.get("FARANDOLE_TRANSPORT", "auto")
    channel = TorchChannel(transport) if transport in ("gloo", "nccl") else Channel()
    found = measure(channel, order["sizes"], order["budget_s"])
    if channel.rank == 0:
        result = Path(order["result"])
        unfinished = result.with_suffix(".part")
        unfinished.write_text(json.dumps(found))
        unfinished.rename(result)
    channel.close()


# Copies of a script.

_CELL_DIR = "FARANDOLE_CELL_DIR"
_DEVICES = "CUDA_VISIBLE_DEVICES"


def copy_environ(environ: Mapping[str, str], copy: int, copies: int) -> dict[str, str]:
    """Return a copy's environment: files of its own, the values of one worker, one GPU."""
    cell_dir, place = environ[_CELL_DIR], Path(environ[RECORD_DIR])
    own_dir = str(Path(cell_dir, str(copy)))
    found = {name: text.replace(cell_dir, own_dir) for name, text in environ.items()}
    found.pop(STOP, None)
    params = json.loads(environ[PARAMS])
    if "global_batch" in params:
        params["global_batch"] //= copies
    params |= {"workers": 1, "cell_dir": own_dir}
    order = {"copy": copy, "copies": copies, "control": str(place / "control")}
    if count_gpus(environ):
        # Each takes itself for the first worker of its host, and would take the first GPU.
        devices = environ.get(_DEVICES, ",".join(map(str, range(copies)))).split(",")
        found[_DEVICES] = devices[copy % len(devices)]
    return found | {
        PARAMS: json.dumps(params),
        RECORD_DIR: str(place / f"copy-{copy}"),
        APART: json.dumps(order),
    }


def run_copy(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a copy to its end; return its exit code."""
    from farandole.launch.launcher import launch
    from farandole.launch.plan import make_plan
    from farandole.world.cores import read_cores

    copy, copies = int(environ["FARANDOLE_RANK"]), int(environ["FARANDOLE_SIZE"])
    mine = copy_environ(environ, copy, copies)
    for path in (mine[_CELL_DIR], mine[RECORD_DIR]):
        Path(path).mkdir(parents=True, exist_ok=True)
    if Path.cwd() == Path(environ[_CELL_DIR]):
        os.chdir(mine[_CELL_DIR])
    parts = [part.replace(environ[_CELL_DIR], mine[_CELL_DIR]) for part in command]
    # A function comes by descriptors, which are this process's to hand down.
    fds = {name: int(environ[name]) for name in (CALL_FD, RESULT_FD) if name in environ}
    ended = launch(
        make_plan(command=parts, np=1, tag=False, environ=mine, cores=read_cores()),
        environ=mine,
        show=lambda stream, line: getattr(sys, stream).write(line),
        worker_fds=lambda _: fds,
    )
    return ended.verdict.exit_code


if __name__ == "__main__":
    if sys.argv[1] == "copy":
        sys.exit(run_copy(sys.argv[2:], os.environ))
    measure_link(json.loads(sys.argv[2]))

"""`farandole.ray.run(fn)`: a function on workers of a Ray cluster that runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from farandole.errors import UsageError

__all__ = ["run"]

T = TypeVar("T")


def run(
    fn: Callable[..., T],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    num_workers: int = 2,
    cpus_per_worker: int = 1,
    gpus_per_worker: int = 0,
    transport: str | None = None,
    output_dir: str | Path | None = None,
    start_timeout: float | None = None,
    silence_timeout: float | None = None,
    exit_timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    tag: bool = True,
) -> list[T]:
    """Run a function on workers of a Ray cluster and return each rank's value, in rank order.

    Ray reserves the room by a placement group, packed on as few hosts as possible. Where the
    program has called `ray.init()`, that cluster is used; else the one at RAY_ADDRESS or on this
    host. Inside of the function, call `hvd.init()` as a script would.

    Args:
        fn: What every worker calls; it travels by value.
        args: Its arguments, the same on all ranks.
        kwargs: Its keyword arguments, the same on all ranks.
        num_workers: How many workers.
        cpus_per_worker: CPUs to reserve for each worker, and its number of threads.
        gpus_per_worker: GPUs to reserve for each worker.
        transport: "auto", "shm", "gloo" or "nccl".
        output_dir: A folder on this host to keep each rank's output in.
        start_timeout: Seconds to wait for room, and that ranks wait for each other.
        silence_timeout: Seconds after which a stopped worker counts as failed.
        exit_timeout: Seconds that exit handlers (atexit) get once no worker does anything else.
        env: Variables to set for the workers.
        tag: Show output with ranks.

    Raises:
        UsageError: An argument cannot be used as given.
        MissingExtraError: Ray is not installed.
        StartError: No cluster runs, or it has no room.
        WorkerFailedError: A worker failed; the message has its rank and traceback.
        KeyboardInterrupt: The user stopped it; all workers have ended.

    Example:
        >>> farandole.ray.run(lambda x: x + 1, args=(1,), num_workers=2)  # doctest: +SKIP
        [2, 2]
    """
    if not callable(fn):
        raise UsageError(f"run() needs a function to call, not {type(fn).__name__}.")
    from farandole.launch.function import encode_call, show, values
    from farandole.launch.plan import make_plan
    from farandole.launch.ray_agents import launch_on_ray
    from farandole.world.cores import read_cores

    given = dict(env or {})
    environ = {**os.environ, **given}
    plan = make_plan(
        command=(sys.executable, "-m", "farandole.launch.call"),
        np=num_workers,
        threads=cpus_per_worker,
        transport=transport,
        output_dir=output_dir,
        start_timeout=start_timeout,
        silence_timeout=silence_timeout,
        exit_timeout=exit_timeout,
        tag=tag,
        environ=environ,
        cores=read_cores(),
    )
    landed = launch_on_ray(
        plan,
        environ=environ,
        show=show,
        gpus=gpus_per_worker,
        call=encode_call(fn, tuple(args), dict(kwargs or {})),
        flag="num_workers=",
        extra_variables=[f"{name}={value}" for name, value in given.items()],
    )
    return values(
        landed.outcome,
        {rank: landed.answers.get(rank) for rank in range(plan.num_workers)},
        silence_timeout_s=plan.silence_timeout_s,
        rank_hosts=landed.placement.rank_hosts,
    )

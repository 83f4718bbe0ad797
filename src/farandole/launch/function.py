"""`farandole.run(fn)`: a function on every worker, from a script or a notebook cell."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

from farandole.errors import UsageError, WorkerFailedError

if TYPE_CHECKING:
    from farandole.launch.launcher import Outcome

T = TypeVar("T")


def run(
    fn: Callable[..., T],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    np: int | str = 2,
    threads: int | None = None,
    transport: str | None = None,
    output_dir: str | Path | None = None,
    start_timeout: float | None = None,
    silence_timeout: float | None = None,
    exit_timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    tag: bool = True,
    hosts: str | None = None,
    max_restarts: int | None = None,
    min_np: int | None = None,
    max_np: int | Literal["auto"] | None = None,
    host_discovery_script: str | None = None,
    slots_per_host: int | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    blacklist: str | None = None,
    blacklist_cooldown_range: Sequence[float] | None = None,
) -> list[T]:
    """Run a function on `np` workers and return each rank's value, in rank order.

    With `min_np`, `max_np` or `host_discovery_script` training survives the loss of workers, if the
    function uses `hvd.elastic`; the values are those of the ranks that came to its end.

    The function travels by value, so that one defined in a notebook cell works. Inside of it,
    import what it needs and call `hvd.init()` as a script would.

    Args:
        fn: What every worker calls.
        args: Its arguments, the same on all ranks.
        kwargs: Its keyword arguments, the same on all ranks.
        np: How many workers, or "auto".
        threads: Threads per worker; the cores divided by the workers when None.
        transport: "auto", "shm", "gloo" or "nccl".
        output_dir: A folder to keep each rank's output in.
        start_timeout: Seconds that ranks wait for each other in `hvd.init()`.
        silence_timeout: Seconds after which a stopped worker counts as failed.
        exit_timeout: Seconds that exit handlers (atexit) get once no worker does anything else.
        env: Variables to set for the workers.
        tag: Show output with ranks.
        hosts: "localhost:2", or None. This host only.
        max_restarts: How often all workers are started again after a failure.
        min_np: With fewer workers than this, training waits for more.
        max_np: New workers are taken in up to this number; "auto": as many as there is room for.
        host_discovery_script: Prints the hosts there are now, `host` or `host:slots` in a line.
        slots_per_host: Workers on a host for which the script prints no number.
        elastic_timeout: Seconds to wait for enough workers.
        reset_limit: How often the set of workers may change.
        blacklist: "slot" or "host": what a failure excludes.
        blacklist_cooldown_range: Seconds for which a host is excluded, the first time and at most.

    Raises:
        UsageError: An argument cannot be used as given.
        WorkerFailedError: A worker failed; the message has its rank and traceback.
        KeyboardInterrupt: The user stopped it; all workers have ended.

    Example:
        >>> farandole.run(lambda x: x + 1, args=(1,), np=2)  # doctest: +SKIP
        [2, 2]
    """
    if not callable(fn):
        raise UsageError(f"run() needs a function to call, not {type(fn).__name__}.")
    if sys.platform == "win32":
        raise UsageError("Workers cannot be started on Windows itself: use WSL2.")
    given = dict(locals())
    from farandole.launch.call import CALL_FD, RESULT_FD
    from farandole.launch.elastic_options import FLAGS, read_options
    from farandole.launch.launcher import launch
    from farandole.launch.placement import named_hosts, pack
    from farandole.launch.plan import count_gpus, make_plan
    from farandole.world.cores import read_cores

    environ = {**os.environ, **(env or {})}
    plan = make_plan(
        command=(sys.executable, "-m", "farandole.launch.call"),
        np=np,
        threads=threads,
        transport=transport,
        output_dir=output_dir,
        start_timeout=start_timeout,
        silence_timeout=silence_timeout,
        exit_timeout=exit_timeout,
        tag=tag,
        environ=environ,
        cores=read_cores(),
        num_gpus=count_gpus(environ),
    )
    slots = named_hosts(hosts, None, {})
    if slots is not None:
        _check_here([host.name for host in slots])
        pack(slots, plan.num_workers, flag="np")
    elastic = read_options(
        {name: given[name] for name in FLAGS},
        num_workers=plan.num_workers,
        hosts=slots,
        environ=environ,
    )
    plan = replace(plan, elastic=elastic)
    with contextlib.ExitStack() as stack:
        call = stack.enter_context(_anonymous_file())
        call.write(encode_call(fn, tuple(args), dict(kwargs or {})))
        call.flush()
        results: dict[int, IO[bytes]] = {}

        def worker_fds(worker: int) -> dict[str, int]:
            results[worker] = stack.enter_context(_anonymous_file())
            return {CALL_FD: call.fileno(), RESULT_FD: results[worker].fileno()}

        outcome = launch(plan, environ=environ, show=show, worker_fds=worker_fds)
        answers = {worker: _answer(file) for worker, file in results.items()}
    return values(outcome, answers, silence_timeout_s=plan.silence_timeout_s)


def values(
    outcome: Outcome,
    answers: Mapping[int, bytes | None],
    *,
    silence_timeout_s: float,
    rank_hosts: Sequence[str] = (),
) -> list[Any]:
    """Return what the workers of a call have answered, in rank order; raise how it failed.

    Args:
        outcome: How the launch ended.
        answers: What `farandole.launch.call` has written, by rank (in an elastic run by the number
            of the worker); None where it wrote none.
        silence_timeout_s: For the message about a worker that was stopped.
        rank_hosts: For each rank its host, where there are several.
    """
    from farandole.launch.message import failure_lines

    verdict = outcome.verdict
    if verdict.kind == "interrupted":
        signum = verdict.exit_code - 128
        if signum != signal.SIGINT:
            # SIGTERM was meant for this program: now it gets it.
            signal.raise_signal(signum)
        raise KeyboardInterrupt
    if verdict.kind != "done":
        told = None if outcome.told_by is None else answers.get(outcome.told_by)
        kind, payload = _opened(told) or ("", b"")
        lines = failure_lines(
            verdict,
            step=outcome.step,
            last_lines=() if kind == "traceback" else outcome.last_lines,
            silence_timeout_s=silence_timeout_s,
            rank_hosts=rank_hosts,
            failures=outcome.failures,
        )
        if kind == "traceback":
            lines += ["", payload.decode().rstrip()]
        raise WorkerFailedError(
            "\n".join(lines).removeprefix("farandole: "),
            rank=verdict.rank,
            exit_code=verdict.exit_code,
        )
    workers = outcome.workers or range(len(answers))
    return [_value(rank, _opened(answers[worker])) for rank, worker in enumerate(workers)]


def _check_here(hosts: Sequence[str]) -> None:
    from farandole.launch.starters import is_here

    for host in hosts:
        if not is_here(host):
            raise UsageError(
                f"Functions run on this host, not on {host}. Use localhost, or start a script with "
                "`farandole run -H ...`."
            )


def encode_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Write a call as the bytes that `farandole.launch.call` reads."""
    import cloudpickle

    try:
        function = cloudpickle.dumps((fn, args, kwargs))
    except Exception as error:
        raise UsageError(
            f"The function or its arguments cannot be sent to workers: {error}. Open files, "
            "locks and connections inside of the function."
        ) from error
    # Where this process finds modules, the workers shall find them too; "" is where it stands.
    path = [entry or str(Path.cwd()) for entry in sys.path]
    return pickle.dumps((path, function))


def _answer(file: IO[bytes]) -> bytes | None:
    file.seek(0)
    return file.read() or None


def _opened(answer: bytes | None) -> tuple[str, bytes] | None:
    return None if answer is None else pickle.loads(answer)


def _value(rank: int, answer: tuple[str, bytes] | None) -> Any:
    if answer is None:
        raise WorkerFailedError(
            f"rank {rank} exited with code 0 before the function returned. "
            "Do not call sys.exit() or os._exit() in it.",
            rank=rank,
            exit_code=0,
        )
    return pickle.loads(answer[1])


def _anonymous_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("farandole-call"), "w+b")
    return tempfile.TemporaryFile()


def show(stream: str, line: str) -> None:
    """Write one line to the program's own output."""
    # Looked up each time: a notebook gives every cell's output its own place.
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.write(line)
    target.flush()

"""`horovod.run`: a function on every worker, with Horovod's arguments."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from farandole.errors import UsageError, WorkerFailedError

T = TypeVar("T")

# What starts workers in Horovod's way, and has no counterpart here.
_IGNORED = (
    "disable_cache",
    "ssh_port",
    "ssh_identity_file",
    "use_gloo",
    "use_mpi",
    "mpi_args",
    "network_interface",
    "network_interfaces",
    "verbose",
    "cooldown_range",
    "reset_limit",
    "slots",
)
_ELASTIC = ("min_num_proc", "max_num_proc", "min_np", "max_np", "host_discovery_script")
# How Horovod's error begins: programs look for these words.
_FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the "
    "job to be terminated. The first process to do so was:"
)


def run(
    func: Callable[..., T],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[T]:
    """Run a function on workers of this host and return each rank's value, in rank order.

    Args:
        func: What every worker calls.
        args: Its arguments, the same on all ranks.
        kwargs: Its keyword arguments, the same on all ranks.
        num_proc: How many workers.
        hosts: "localhost:2", or None.
        hostfile: A file that names this host, or None.
        executable: This program's own Python, or None.
        start_timeout: Seconds that ranks wait for each other in `hvd.init()`.
        output_filename: A folder to keep each rank's output in.
        np: The deprecated name of num_proc.

    The others are taken as Horovod takes them; those that mean nothing here are named in a warning.

    Raises:
        UsageError: Something is asked for that Farandole does not have.
        WorkerFailedError: A worker failed; the message has its rank and traceback.
    """
    given = dict(locals())
    elastic = [name for name in _ELASTIC if given[name] is not None]
    if elastic:
        raise UsageError(
            f"horovod.run({elastic[0]}=...): Farandole has no elastic runs. Give num_proc only."
        )
    if executable not in (None, sys.executable):
        raise UsageError(
            f"horovod.run(executable={executable!r}): functions run by this program's own Python. "
            "Leave executable out, or start a script with `farandole horovodrun`."
        )
    if use_gloo and use_mpi:
        raise UsageError("horovod.run(use_gloo=True, use_mpi=True): only one of them can be True.")
    if np is not None:
        warnings.warn("np is deprecated, use num_proc", DeprecationWarning, stacklevel=2)
        num_proc = np
    _check_places(hosts, hostfile, num_proc)
    ignored = [name for name in _IGNORED if given[name] not in (None, False)]
    if ignored:
        verb = "mean" if len(ignored) > 1 else "means"
        warnings.warn(
            f"horovod.run: {', '.join(ignored)} {verb} nothing to Farandole.", stacklevel=2
        )
    from farandole.launch.function import run as run_function

    try:
        return run_function(
            func,
            args,
            kwargs,
            np=num_proc,
            start_timeout=start_timeout,
            output_dir=output_filename,
        )
    except WorkerFailedError as error:
        raise WorkerFailedError(
            f"{_FAILED}\n{error}", rank=error.rank, exit_code=error.exit_code
        ) from error


def _check_places(hosts: str | None, hostfile: str | None, num_proc: int) -> None:
    """Raise UsageError unless the hosts are this one, with a slot for every worker."""
    from farandole.launch.placement import named_hosts, pack
    from farandole.launch.starters import is_here

    slots = named_hosts(hosts, hostfile, {})
    if slots is None:
        return
    for host in slots:
        if not is_here(host.name):
            raise UsageError(
                f"horovod.run: functions run on this host, not on {host.name}. Use localhost, or "
                "start a script with `farandole horovodrun -H ...`."
            )
    pack(slots, num_proc, flag="num_proc")

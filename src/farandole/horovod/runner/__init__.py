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
)
_ELASTIC = ("reset_limit", "cooldown_range", "slots")
_DEPRECATED = {"np": "num_proc", "min_np": "min_num_proc", "max_np": "max_num_proc"}
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

    With min_num_proc or host_discovery_script the run is elastic, and the values are those of the
    first min_num_proc ranks.

    Args:
        func: What every worker calls.
        args: Its arguments, the same on all ranks.
        kwargs: Its keyword arguments, the same on all ranks.
        num_proc: How many workers.
        min_num_proc: With fewer workers than this, training waits for more.
        max_num_proc: New workers are taken in up to this number; None: as long as there is room.
        slots: Workers on a host for which the discovery script prints no number.
        reset_limit: How often the set of workers may change.
        cooldown_range: Seconds for which a host with a failed worker is excluded, the first time
            and at most; None: for good.
        hosts: "localhost:2", or None.
        hostfile: A file that names this host, or None.
        host_discovery_script: Prints the hosts there are now, `host` or `host:slots` in a line.
        executable: This program's own Python, or None.
        start_timeout: Seconds that ranks wait for each other in `hvd.init()`.
        output_filename: A folder to keep each rank's output in.
        np: The deprecated name of num_proc; likewise min_np and max_np.

    The others are taken as Horovod takes them; those that mean nothing here are named in a warning.

    Raises:
        UsageError: Something is asked for that Farandole does not have.
        WorkerFailedError: A worker failed; the message has its rank and traceback.
    """
    given = dict(locals())
    if executable not in (None, sys.executable):
        raise UsageError(
            f"horovod.run(executable={executable!r}): functions run by this program's own Python. "
            "Leave executable out, or start a script with `farandole horovodrun`."
        )
    if use_gloo and use_mpi:
        raise UsageError("horovod.run(use_gloo=True, use_mpi=True): only one of them can be True.")
    for old, new in _DEPRECATED.items():
        if given[old] is not None:
            text = f"{old} is deprecated, use {new}"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            given[new] = given[old]
    least, num_proc = given["min_num_proc"], given["num_proc"]
    is_elastic = least is not None or host_discovery_script is not None
    elastic: dict[str, Any] = {}
    if is_elastic:
        num_proc = max(num_proc, least or 1)
        elastic = {
            "min_np": least,
            "max_np": given["max_num_proc"] or "auto",
            "host_discovery_script": host_discovery_script,
            "slots_per_host": slots,
            "reset_limit": reset_limit,
            "blacklist": "host",
            "blacklist_cooldown_range": cooldown_range,
        }
    named = _named_hosts(hosts, hostfile, num_proc)
    unused = () if is_elastic else _ELASTIC
    ignored = [name for name in (*_IGNORED, *unused) if given[name] not in (None, False)]
    if ignored:
        verb = "mean" if len(ignored) > 1 else "means"
        warnings.warn(
            f"horovod.run: {', '.join(ignored)} {verb} nothing to Farandole.", stacklevel=2
        )
    from farandole.launch.function import run as run_function

    try:
        values = run_function(
            func,
            args,
            kwargs,
            np=num_proc,
            start_timeout=start_timeout,
            output_dir=output_filename,
            hosts=named,
            **elastic,
        )
    except WorkerFailedError as error:
        raise WorkerFailedError(
            f"{_FAILED}\n{error}", rank=error.rank, exit_code=error.exit_code
        ) from error
    return values[: least or num_proc] if is_elastic else values


def _named_hosts(hosts: str | None, hostfile: str | None, num_proc: int) -> str | None:
    """Return the hosts in one line; raise UsageError unless they are this one, with room."""
    from farandole.launch.placement import named_hosts, pack
    from farandole.launch.starters import is_here

    slots = named_hosts(hosts, hostfile, {})
    if slots is None:
        return None
    for host in slots:
        if not is_here(host.name):
            raise UsageError(
                f"horovod.run: functions run on this host, not on {host.name}. Use localhost, or "
                "start a script with `farandole horovodrun -H ...`."
            )
    pack(slots, num_proc, flag="num_proc")
    return ",".join(f"{host.name}:{host.count}" for host in slots)

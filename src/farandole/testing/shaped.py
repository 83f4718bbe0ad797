"""Ranks on slow links: real processes in network namespaces, which stand for hosts, on a bridge.

What leaves a host is shaped by the kernel (tbf), as a network card of that speed would. Namespaces
have no names and belong to the ranks: when these end, however they end, the kernel takes the
namespaces, the devices and the addresses away, and the host's own network never sees any of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from farandole.errors import UsageError
from farandole.testing.nursery import Nursery
from farandole.testing.worlds import FakeWorld, Member

_CLONE_NEWNET = 0x40000000
_DEVICE = "eth0"
# Of a range for documentation, which nobody routes; these never leave the namespaces anyway.
_NETWORK = "192.0.2"
_MOST_RANKS = 250
_TOOLS = ("ip", "tc")
# Large packets spare processors; what may pass at once is more than one of them, and little beside
# a gradient bucket.
_MTU_BYTES, _LARGEST_BYTES, _BURST_BYTES = 9000, 16 * 1024, 32 * 1024
_QUEUE_MS = 400
_TIMEOUT_S = 30.0
_TRIAL = "from farandole.testing.shaped import trial; trial()"


@functools.cache
def why_not() -> str:
    """Say why there can be no shaped links here; "" when there can."""
    if sys.platform != "linux":
        return "shaped links need Linux"
    if os.geteuid() != 0:
        return "shaped links need root: network namespaces are made"
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            return f"shaped links need `{tool}`: apt-get install iproute2"
    done = subprocess.run(
        [sys.executable, "-c", _TRIAL], capture_output=True, text=True, timeout=60, check=False
    )
    said = (done.stderr.strip().splitlines() or ["?"])[-1]
    return "" if done.returncode == 0 else f"this kernel or container forbids shaped links: {said}"


def trial() -> None:
    """Make a shaped device in a namespace of this process's own, to see whether that works."""
    _leave_network()
    _ip("link", "add", "trial", *_large(), "type", "bridge")
    _ip("link", "add", _DEVICE, *_large(), "type", "veth", "peer", "name", "port", *_large())
    _shape(1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How ranks fared with the processors meanwhile."""

    cores: float
    """What they used, as a share of all cores."""
    waited: float
    """How long the thread that had to wait most for a processor did so, as a share of the time."""


class ShapedWorld:
    """Ranks whose hosts reach each other over shaped links only.

    Example:
        >>> with ShapedWorld(4, rate_bits_per_s=50e6) as world:  # doctest: +SKIP
        ...     world.run(function_of_a_member, ranks=range(2))
    """

    def __init__(
        self,
        size: int,
        *,
        rate_bits_per_s: float,
        per_host: int = 1,
        transport: str = "auto",
        nursery: Nursery | None = None,
    ) -> None:
        """Fork the ranks and connect them.

        Args:
            size: how many ranks; one more process holds the bridge.
            rate_bits_per_s: of what leaves each host.
            per_host: how many ranks share a host; those of the first come first.
            transport: which transport `hvd.init()` shall take, as for FakeWorld.
            nursery: where the ranks come from, as for FakeWorld.

        Raises:
            UsageError: this machine cannot; `why_not()` says so beforehand.
        """
        reason = why_not()
        if reason:
            raise UsageError(f"There are no shaped links here: {reason}.")
        if not 1 <= size <= _MOST_RANKS:
            raise UsageError(f"You asked for {size} ranks: use 1 to {_MOST_RANKS}.")
        if per_host < 1:
            raise UsageError(f"You asked for {per_host} ranks on each host: use 1 or more.")
        self.size, self.per_host = size, per_host
        self._first = range(0, size, per_host)
        """The first rank of each host, which makes its network."""
        self._world = FakeWorld(
            size, transport=transport, per_host=per_host, helpers=1, nursery=nursery
        )
        hub, pids = [size], self._world.pids
        try:
            self._call(_hold_bridge, ranks=hub)
            self._call(_join_bridge, pids[size], per_host, ranks=self._first)
            others = [rank for rank in range(size) if rank not in self._first]
            self._call(_join_host, pids, per_host, ranks=others)
            self._call(_settle, per_host, ranks=range(size))
            self._call(_plug_in, len(self._first), ranks=hub)
            self.set_rate(rate_bits_per_s)
        except BaseException:
            self.close()
            raise

    def set_rate(self, rate_bits_per_s: float) -> None:
        """Give all links another speed."""
        self._call(_set_rate, rate_bits_per_s, ranks=self._first)

    def cut(self, host: int) -> None:
        """Take a host's link away, as when a cable is pulled."""
        self._call(_unplug, host, ranks=[self.size])

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin a call on all ranks; `finish` gets the values."""
        self._world.start(function, *arguments)

    def finish(self, ranks: Sequence[int], *, timeout_s: float = 60.0) -> list[Any]:
        """Wait for the values of some ranks of a call that was started."""
        return self._world.finish(ranks, timeout_s=timeout_s)

    def kill(self, rank: int) -> None:
        """End a rank by SIGKILL."""
        self._world.kill(rank)

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        ranks: Sequence[int] | None = None,
        timeout_s: float = 60.0,
    ) -> list[Any]:
        """Call `function(member, *arguments)` on all ranks or some; return the values in order."""
        chosen = range(self.size) if ranks is None else ranks
        return self._call(function, *arguments, ranks=chosen, timeout_s=timeout_s)

    def measure_use(self, ranks: Sequence[int]) -> Callable[[], Use]:
        """Begin to look at the processors; what is returned ends it."""
        pids = [self._world.pids[rank] for rank in ranks]
        begin_s, before = time.monotonic(), _scheduled(pids)

        def end() -> Use:
            wall_s = time.monotonic() - begin_s
            spent_s, waited_s = 0.0, [0.0]
            for thread, (ran_s, delayed_s) in _scheduled(pids).items():
                ran_before_s, delayed_before_s = before.get(thread, (0.0, 0.0))
                spent_s += ran_s - ran_before_s
                waited_s.append(delayed_s - delayed_before_s)
            return Use(
                cores=spent_s / (wall_s * (os.cpu_count() or 1)), waited=max(waited_s) / wall_s
            )

        return end

    def close(self) -> None:
        """End all ranks, and with them their namespaces."""
        self._world.close()

    def __enter__(self) -> ShapedWorld:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        ranks: Sequence[int],
        timeout_s: float = _TIMEOUT_S,
    ) -> list[Any]:
        self._world.start(function, *arguments, ranks=ranks)
        return self._world.finish(ranks, timeout_s=timeout_s)


def address_of(host: int) -> str:
    """Return a host's address, which only the ranks of its world reach."""
    return f"{_NETWORK}.{host + 1}"


def join_group(member: Member, size: int, meeting: str) -> None:
    """Join torch.distributed's Gloo group of the first ranks (call it on these).

    Args:
        member: a rank of a shaped world.
        size: how many ranks join.
        meeting: a file that does not exist yet, where they find each other.
    """
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = _DEVICE
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=member.rank, world_size=size
    )


def leave_group(member: Member) -> None:
    """Leave the group."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


def _hold_bridge(member: Member) -> None:
    _leave_network()
    _ip("link", "add", "bridge", *_large(), "type", "bridge")
    _ip("link", "set", "bridge", "up")


def _join_bridge(member: Member, hub: int, per_host: int) -> None:
    _leave_network()
    host = member.rank // per_host
    _ip(
        *("link", "add", _DEVICE, *_large(), "type", "veth"),
        *("peer", "name", f"port{host}", *_large(), "netns", str(hub)),
    )
    _ip("addr", "add", f"{address_of(host)}/24", "dev", _DEVICE)
    for device in ("lo", _DEVICE):
        _ip("link", "set", device, "up")


def _join_host(member: Member, pids: Sequence[int], per_host: int) -> None:
    first = pids[member.rank // per_host * per_host]
    # Of the thread that has left the network: that is the main one.
    with Path(f"/proc/{first}/ns/net").open("rb") as network:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(network.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")


def _settle(member: Member, per_host: int) -> None:
    # Ranks hardly compute here, but what they do is timed: others on this machine may wait.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    os.environ["FARANDOLE_ADDRESS"] = address_of(member.rank // per_host)


def _plug_in(member: Member, hosts: int) -> None:
    for host in range(hosts):
        _ip("link", "set", f"port{host}", "master", "bridge", "up")


def _unplug(member: Member, host: int) -> None:
    _ip("link", "set", f"port{host}", "down")


def _large() -> tuple[str, ...]:
    return "mtu", str(_MTU_BYTES), "gso_max_size", str(_LARGEST_BYTES)


def _set_rate(member: Member, rate_bits_per_s: float) -> None:
    _shape(rate_bits_per_s)


def _shape(rate_bits_per_s: float) -> None:
    _run(
        *("tc", "qdisc", "replace", "dev", _DEVICE, "root", "tbf"),
        *("rate", f"{rate_bits_per_s:.0f}bit", "burst", str(_BURST_BYTES)),
        *("latency", f"{_QUEUE_MS}ms"),
    )


def _leave_network() -> None:
    """Move this thread, and those that it starts from now on, into a new, empty network."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"unshare(CLONE_NEWNET): {os.strerror(number)}")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _scheduled(pids: Sequence[int]) -> dict[str, tuple[float, float]]:
    """Return for each thread how long it has run, and how long it has waited for a processor."""
    found = {}
    for pid in pids:
        for file in Path("/proc", str(pid), "task").glob("*/schedstat"):
            # A thread may end while it is looked at.
            with contextlib.suppress(OSError):
                ran, delayed, _ = file.read_text().split()
                found[str(file)] = (int(ran) / 1e9, int(delayed) / 1e9)
    return found

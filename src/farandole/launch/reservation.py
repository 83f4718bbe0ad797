"""A reservation on a Ray cluster: a placement group with room for all workers, given back."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole.errors import MissingExtraError, StartError, UsageError
from farandole.format import plural
from farandole.launch.placement import Placement, numbered
from farandole.world.environment import is_loopback

_CONNECT_TIMEOUT_S = 5.0
_PIECE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host of a Ray cluster with a part of a job."""

    name: str
    address: str
    bundle: int
    """The number of a bundle of the placement group that lies there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What Ray has reserved for a job."""

    placement: Placement
    nodes: tuple[Node, ...]
    group: Any = field(repr=False)
    """The placement group."""
    gpus: bool = False
    """Whether each worker has GPUs of its own."""


@contextlib.contextmanager
def connected() -> Iterator[Any]:
    """Give the ray module, connected to the cluster that runs; disconnect where that was done here.

    Raises:
        MissingExtraError: Ray is not installed.
        UsageError: RAY_ADDRESS is for Ray's client.
        StartError: No cluster runs, or it cannot be joined.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(
            "Ray is not installed: pip install 'farandole[ray]' here and on every host."
        ) from error
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("ray://"):
        # ray.init() would look for a cluster on this host instead.
        raise UsageError(
            f"RAY_ADDRESS={address} is an address of Ray's client, but agents of the workers call "
            "back to this program. Start it on a host of the cluster, with RAY_ADDRESS=HOST:6379."
        )
    util: Any = ray.util  # parts of it have no types
    if address and not reachable(address, here=util.get_node_ip_address()):
        raise StartError(_not_running(address))
    try:
        # Workers' output comes by the agents; Ray would show it a second time.
        ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise StartError(_not_running(address)) from error
    except (RuntimeError, ValueError) as error:
        raise StartError(f"The Ray cluster cannot be joined: {_first_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def reachable(address: str, *, here: str) -> bool:
    """Say whether somebody listens at HOST:PORT; True for addresses of another form.

    Ray itself takes minutes to give up, and says so in lines of its own.

    Args:
        address: What RAY_ADDRESS says.
        here: This host's address in the network, where Ray listens also when loopback is meant.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return True
    for place in (host, here) if is_loopback(host) else (host,):
        with (
            contextlib.suppress(OSError),
            socket.create_connection((place, int(port)), _CONNECT_TIMEOUT_S),
        ):
            return True
    return False


def _not_running(address: str) -> str:
    where = f"at RAY_ADDRESS={address}" if address else "on this host"
    return (
        f"Ray is not running {where}. Start it with `ray start --head`, or set RAY_ADDRESS to the "
        "HOST:PORT of a cluster that runs."
    )


@contextlib.contextmanager
def reserved(
    ray: Any,
    num_workers: int,
    *,
    cpus: float = 1,
    gpus: float = 0,
    timeout_s: float,
    flag: str = "-np ",
) -> Iterator[Reservation]:
    """Reserve room for workers, packed on as few hosts as possible; give it back at the end.

    Args:
        ray: The ray module, connected.
        num_workers: How many workers.
        cpus: CPUs for each of them.
        gpus: GPUs for each of them.
        timeout_s: How long to wait until there is room.
        flag: What the user set the number of workers with.

    Raises:
        StartError: There was no room in time.
    """
    from ray.util import placement_group, remove_placement_group

    bundle = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
    group = placement_group([bundle] * num_workers, strategy="PACK")
    try:
        if not wait_for_room(group, timeout_s):
            raise StartError(
                no_room(
                    bundle,
                    num_workers,
                    total=ray.cluster_resources(),
                    free=ray.available_resources(),
                    timeout_s=timeout_s,
                    flag=flag,
                )
            )
        yield _room(ray, group, gpus=bool(gpus))
    finally:
        remove_placement_group(group)


def wait_for_room(group: Any, timeout_s: float) -> bool:
    """Wait for a placement group, in pieces: Python hears of Ctrl-C only between two of them."""
    deadline = time.monotonic() + timeout_s
    while not group.wait(min(_PIECE_S, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return False
    return True


def no_room(
    bundle: Mapping[str, float],
    num_workers: int,
    *,
    total: Mapping[str, float],
    free: Mapping[str, float],
    timeout_s: float,
    flag: str,
) -> str:
    """Say what was asked for, and what the cluster has."""
    asked = " and ".join(f"{amount:g} {kind}" for kind, amount in bundle.items())
    has = " and ".join(
        f"{total.get(kind, 0):g} {kind} ({free.get(kind, 0):g} free)" for kind in bundle
    )
    fits = int(min(total.get(kind, 0) / amount for kind, amount in bundle.items()))
    do = f"Use {flag}{fits}" if 0 < fits < num_workers else "Wait until others have ended"
    return (
        f"You asked for {plural(num_workers, 'worker')} ({flag}{num_workers}) with {asked} "
        "each, but the Ray "
        f"cluster has {has}, and did not find room within {timeout_s:g} s. {do}, or add hosts."
    )


def place(homes: Sequence[str], nodes: Sequence[Mapping[str, Any]], *, here: str) -> list[Node]:
    """Tell the hosts of a placement group, the driver's own first: rank 0 is where the user is.

    Args:
        homes: For each bundle the id of its node.
        nodes: What `ray.nodes()` says.
        here: The id of the driver's node.
    """
    known = {node["NodeID"]: node for node in nodes}
    order = sorted(dict.fromkeys(homes), key=lambda home: home != here)
    names = Counter(known[home]["NodeManagerHostname"] for home in order)
    found = []
    for home in order:
        name = known[home]["NodeManagerHostname"]
        # A host may be two nodes of Ray's.
        unique = name if names[name] == 1 else f"{name}-{home[:6]}"
        address = known[home]["NodeManagerAddress"]
        found.append(Node(name=unique, address=address, bundle=homes.index(home)))
    return found


def _room(ray: Any, group: Any, *, gpus: bool) -> Reservation:
    from ray.util import placement_group_table

    table = placement_group_table(group)["bundles_to_node_id"]
    homes = [table[number] for number in sorted(table)]
    here = ray.get_runtime_context().get_node_id()
    nodes = place(homes, ray.nodes(), here=here)
    placement = numbered((node.name, homes.count(homes[node.bundle])) for node in nodes)
    return Reservation(placement=placement, nodes=tuple(nodes), group=group, gpus=gpus)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]

"""All-reduces between two hosts on a shaped link: hierarchical beside flat ones.

    farandole bench hosts [--quick] [--json]

It needs Linux, root and iproute2. Hosts are network namespaces; what leaves one is slowed down to
the rate of a network card. Implementations take turns, round by round, and figures are ratios
within a round: who measured them on which machine does not matter much.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from farandole.engine.buckets import BUCKET_BYTES, FULL, open_buckets
from farandole.engine.engine import Engine
from farandole.engine.loop import Loop
from farandole.engine.operations import Allreduce
from farandole.engine.signature import Signature
from farandole.testing.nursery import Nursery
from farandole.testing.shaped import ShapedWorld, address_of, join_group, leave_group
from farandole.testing.worlds import Member
from farandole.transport.gloo import GlooTransport
from farandole.transport.hierarchical.transport import HierarchicalTransport
from farandole.transport.hosts import hosts_of
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import SUM
from farandole.world.foreign import VOID_SHARE, disturbance, read_cpu

HOSTS = 2
NBYTES = 44_700_000
"""ResNet-18's gradients."""
SUBJECTS = ("hierarchical", "hierarchical buckets")
"""The first has figures to reach: one all-reduce, as the peers' is one. Buckets are six, each
agreed on by itself: only shown."""
PEERS = ("torch gloo", "flat gloo")
LINK_TO_REACH = 0.8
"""Of the link's rate, for what both hosts send each other: bytes over time."""
RATIO_TO_REACH = {2: 1.35, 4: 1.5}
"""Against torch's own Gloo, by ranks per host."""
_DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Ranks, and the link between their hosts."""

    per_host: int
    rate_bits_per_s: float
    rounds: int

    @property
    def name(self) -> str:
        """Say it in words."""
        rate = f"{self.rate_bits_per_s / 1e6:g} Mbit/s"
        return f"{HOSTS} hosts with {self.per_host} ranks each, {rate}"


QUICK = (Scenario(2, 1e9, rounds=5), Scenario(4, 1e9, rounds=5))
WHOLE = tuple(Scenario(n, rate, count) for rate, count in ((1e9, 9), (1e8, 3)) for n in (2, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a scenario took."""

    scenario: Scenario
    times_s: Mapping[str, Sequence[float]]
    """By implementation, one per round: until the last rank had its result."""
    cores: float
    """What the ranks used of all cores meanwhile, as a share."""
    others: float
    """What other processes did."""

    def link(self, name: str) -> float:
        """Return the bytes over the time, as a share of the link's rate."""
        return 8 * NBYTES / median(self.times_s[name]) / self.scenario.rate_bits_per_s

    def ratio(self, name: str, peer: str) -> float:
        """Return how many times as fast it was as a peer: the median over the rounds."""
        pairs = zip(self.times_s[name], self.times_s[peer], strict=True)
        return median(theirs / mine for mine, theirs in pairs)

    @property
    def void(self) -> str:
        """Say why this does not count; "" when it does."""
        if self.others > VOID_SHARE:
            return f"others took {self.others:.0%} of the machine, which is over {VOID_SHARE:.0%}"
        return ""

    @property
    def reached(self) -> bool:
        """Whether both figures are what they should be."""
        to_reach = RATIO_TO_REACH[self.scenario.per_host]
        ratio = self.ratio(SUBJECTS[0], PEERS[0])
        return self.link(SUBJECTS[0]) >= LINK_TO_REACH and ratio >= to_reach


def measure_all(scenarios: Sequence[Scenario]) -> Iterator[Result]:
    """Measure one scenario after the other; those with equal ranks share a world.

    Raises:
        UsageError: there are no shaped links here.
    """
    # torch's store warns of every address that has no name, and these have none.
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
    with Nursery(("farandole.torch", __name__), variables=quiet) as nursery:
        for per_host in dict.fromkeys(scenario.per_host for scenario in scenarios):
            with open_world(per_host, nursery) as world:
                for scenario in scenarios:
                    if scenario.per_host == per_host:
                        yield measure(world, scenario)


@contextmanager
def open_world(per_host: int, nursery: Nursery) -> Iterator[ShapedWorld]:
    """Give two hosts with so many ranks each, which have opened all implementations."""
    size = HOSTS * per_host
    with ShapedWorld(size, rate_bits_per_s=1e9, per_host=per_host, nursery=nursery) as world:
        with tempfile.TemporaryDirectory(prefix="farandole-hosts-") as folder:
            world.run(prepare, per_host, NBYTES, str(Path(folder, "meeting")), timeout_s=120)
        yield world
        world.run(leave)


def measure(world: ShapedWorld, scenario: Scenario) -> Result:
    """Let all implementations take their turns, in a world that has the scenario's ranks."""
    world.set_rate(scenario.rate_bits_per_s)
    times_s: dict[str, list[float]] = {name: [] for name in (*SUBJECTS, *PEERS)}
    # Flat Gloo with 8 ranks sends three times what the link must carry.
    patience_s = 60.0 + 20 * 8 * NBYTES / scenario.rate_bits_per_s
    for name in times_s:
        world.run(allreduce, name, timeout_s=patience_s)
    finish, before = world.measure_use(range(world.size)), read_cpu()
    for _ in range(scenario.rounds):
        for name, times in times_s.items():
            spans = world.run(allreduce, name, timeout_s=patience_s)
            times.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
    taken, use = disturbance(before, read_cpu(), num_cores=os.cpu_count() or 1), finish()
    others = max(0.0, taken.foreign_share - use.cores)
    return Result(scenario=scenario, times_s=times_s, cores=use.cores, others=others)


def prepare(member: Member, per_host: int, nbytes: int, meeting: str) -> None:
    """Open every implementation on a rank: they share nothing but the link."""
    rank, size, state = member.rank, member.size, member.state
    address = address_of(rank // per_host)
    hosts = hosts_of([f"host{each // per_host}" for each in range(size)])
    join_group(member, size, meeting)
    # All ranks are on one machine, whatever they think of their hosts.
    crowded = size > (os.cpu_count() or 1)
    for name, transport in (
        ("flat gloo", GlooTransport(rank, size, member.exchange, address=address)),
        ("hierarchical", HierarchicalTransport(rank, hosts, member.exchange, address=address)),
    ):
        state[name] = Engine(transport, Loop(crowded=crowded, distant=True), member.exchange)
    state["data"], state["step"] = np.empty(nbytes // 4, np.float32), 0
    counts = [min(BUCKET_BYTES, nbytes - at) // 4 for at in range(0, nbytes, BUCKET_BYTES)]
    layout = [(count, _DTYPE) for count in counts]
    state["buckets"] = open_buckets(state["hierarchical"], "bench", layout, note_bytes=1)


def allreduce(member: Member, name: str) -> tuple[float, float]:
    """All-reduce once; return when this rank began, and when it had a result that is right."""
    state = member.state
    data, buckets = state["data"], state["buckets"]
    arrays = buckets.arrays if name == "hierarchical buckets" else [data]
    for array in arrays:
        array[...] = member.rank + 1
    member.exchange(b"")
    begin_s = time.monotonic()
    if name == "torch gloo":
        dist.all_reduce(torch.from_numpy(data))
    elif name == "hierarchical buckets":
        state["step"] += 1
        note = np.zeros(1, np.uint8)
        places = range(len(arrays))
        for handle in [buckets.submit(at, state["step"], SUM, FULL, note) for at in places]:
            state["hierarchical"].wait(handle)
    else:
        buffer = Buffer(data, _DTYPE)
        signature = Signature.reducing("allreduce", _DTYPE, data.shape, SUM)
        state[name].run("bench", Allreduce(signature, buffer, buffer, SUM))
    end_s = time.monotonic()
    expected = member.size * (member.size + 1) / 2
    assert all((array == expected).all() for array in arrays), f"{name} is wrong"
    return begin_s, end_s


def leave(member: Member) -> None:
    """Close everything on a rank."""
    member.exchange(b"")
    for name in ("hierarchical", "flat gloo"):
        member.state[name].close()
    leave_group(member)


def lines_of(result: Result) -> list[str]:
    """Write one line for each implementation."""
    lines = [result.scenario.name]
    for name, times_s in result.times_s.items():
        line = (
            f"  {name:20} {1e3 * median(times_s):7.0f} ms "
            f"({1e3 * min(times_s):.0f} to {1e3 * max(times_s):.0f}), "
            f"{100 * result.link(name):3.0f} % of the link"
        )
        if name in SUBJECTS:
            line += "".join(f", {result.ratio(name, peer):.2f}x {peer}" for peer in PEERS)
        lines.append(line)
    use = f"  cores {result.cores:.0%} by the ranks, {result.others:.0%} by others"
    return [*lines, use + (f"; void: {result.void}" if result.void else "")]


def summary(results: Sequence[Result]) -> list[str]:
    """Say what was reached."""
    lines = []
    for one in results:
        ratio = f"{RATIO_TO_REACH[one.scenario.per_host]:g}x {PEERS[0]}"
        verdict = "void" if one.void else "reached" if one.reached else "NOT reached"
        lines.append(f"{one.scenario.name}: {verdict}: {LINK_TO_REACH:.0%} of the link and {ratio}")
    return lines


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return all times, and the figures made of them."""
    scenarios = [
        {
            "per_host": one.scenario.per_host,
            "rate_bits_per_s": one.scenario.rate_bits_per_s,
            "times_s": {name: list(times) for name, times in one.times_s.items()},
            "link": {name: one.link(name) for name in one.times_s},
            "ratio": {name: {peer: one.ratio(name, peer) for peer in PEERS} for name in SUBJECTS},
            "to_reach": {"link": LINK_TO_REACH, "ratio": RATIO_TO_REACH[one.scenario.per_host]},
            "cores": one.cores,
            "others": one.others,
            "void": one.void,
        }
        for one in results
    ]
    return {"nbytes": NBYTES, "hosts": HOSTS, "scenarios": scenarios}

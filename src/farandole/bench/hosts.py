"""All-reduces between two hosts on a shaped link: hierarchical beside flat ones.

    farandole bench hosts [--quick] [--json]

It needs Linux, root and iproute2. Hosts are network namespaces; what leaves one is slowed down to
the rate of a network card. Contestants take turns, round by round, and figures are ratios within a
round: who measured them on which machine does not matter much.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from farandole.bench import hosts_turns
from farandole.testing.nursery import Nursery
from farandole.testing.shaped import ShapedWorld
from farandole.world.foreign import VOID_SHARE, read_cpu

HOSTS = 2
NBYTES = 44_700_000
"""ResNet-18's gradients."""
SUBJECTS = ("hierarchical", "hierarchical buckets")
JUDGED = SUBJECTS[0]
"""One all-reduce, as the peers' is one. Buckets are six, each agreed on by itself: only shown."""
PEERS = ("torch gloo", "flat gloo")
LINK_TO_REACH = 0.8
"""Of the link's rate, for what both hosts send each other: bytes over time."""
RATIO_TO_REACH = {2: 1.35, 4: 1.5}
"""Against torch's own Gloo, by ranks per host."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


QUICK = tuple(Scenario(per_host=n, rate_bits_per_s=1e9, rounds=5) for n in (2, 4))
WHOLE = (
    *(Scenario(per_host=n, rate_bits_per_s=1e9, rounds=9) for n in (2, 4)),
    *(Scenario(per_host=n, rate_bits_per_s=1e8, rounds=3) for n in (2, 4)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a scenario took."""

    scenario: Scenario
    times_s: Mapping[str, Sequence[float]]
    """By contestant, one per round: until the last rank had its result."""
    cores: float
    """What the ranks used of all cores meanwhile, as a share."""
    others: float
    """What other processes did."""

    def link(self, contestant: str) -> float:
        """Return the bytes over the time, as a share of the link's rate."""
        time_s = median(self.times_s[contestant])
        return 8 * NBYTES / time_s / self.scenario.rate_bits_per_s

    def ratio(self, contestant: str, peer: str) -> float:
        """Return how many times as fast it was as a peer: the median over the rounds."""
        pairs = zip(self.times_s[contestant], self.times_s[peer], strict=True)
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
        return self.link(JUDGED) >= LINK_TO_REACH and self.ratio(JUDGED, PEERS[0]) >= to_reach


def measure(world: ShapedWorld, scenario: Scenario) -> Found:
    """Let all contestants take their turns.

    Args:
        world: has the scenario's ranks.
        scenario: the rest.
    """
    world.set_rate(scenario.rate_bits_per_s)
    times_s: dict[str, list[float]] = {name: [] for name in (*SUBJECTS, *PEERS)}
    # Flat Gloo with 8 ranks sends three times what the link must carry.
    patience_s = 60.0 + 20 * 8 * NBYTES / scenario.rate_bits_per_s
    for name in times_s:
        world.run(hosts_turns.take, name, timeout_s=patience_s)
    finish, before = world.measure_use(range(world.size)), read_cpu()
    for _ in range(scenario.rounds):
        for name, times in times_s.items():
            spans = world.run(hosts_turns.take, name, timeout_s=patience_s)
            times.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
    after, use = read_cpu(), finish()
    own = (after.own_s - before.own_s) / ((after.wall_s - before.wall_s) * (os.cpu_count() or 1))
    busy = (after.busy_s - before.busy_s) / ((after.wall_s - before.wall_s) * (os.cpu_count() or 1))
    return Found(
        scenario=scenario, times_s=times_s, cores=use.cores, others=max(0, busy - use.cores - own)
    )


@contextmanager
def opened_world(per_host: int, nursery: Nursery) -> Iterator[ShapedWorld]:
    """Give two hosts with so many ranks each, which have opened all contestants."""
    size = HOSTS * per_host
    with ShapedWorld(size, rate_bits_per_s=1e9, per_host=per_host, nursery=nursery) as world:
        with tempfile.TemporaryDirectory(prefix="farandole-hosts-") as folder:
            meeting = str(Path(folder, "meeting"))
            world.run(hosts_turns.prepare, per_host, NBYTES, meeting, timeout_s=120)
        yield world
        world.run(hosts_turns.leave)


def measured(scenarios: Sequence[Scenario]) -> Iterator[Found]:
    """Measure one scenario after the other; those with equal ranks share a world.

    Raises:
        UsageError: there are no shaped links here.
    """
    # torch's store warns of every address that has no name, and these have none.
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
    preload = ("farandole.torch", "torch.distributed", hosts_turns.__name__)
    with Nursery(preload, variables=quiet) as nursery:
        for per_host in dict.fromkeys(scenario.per_host for scenario in scenarios):
            with opened_world(per_host, nursery) as world:
                for scenario in scenarios:
                    if scenario.per_host == per_host:
                        yield measure(world, scenario)


def lines_of(found: Found) -> list[str]:
    """Write one line for each contestant."""
    said = [found.scenario.name]
    for name, times_s in found.times_s.items():
        line = (
            f"  {name:20} {1e3 * median(times_s):7.0f} ms "
            f"({1e3 * min(times_s):.0f} to {1e3 * max(times_s):.0f}), "
            f"{100 * found.link(name):3.0f} % of the link"
        )
        if name in SUBJECTS:
            line += "".join(f", {found.ratio(name, peer):.2f}x {peer}" for peer in PEERS)
        said.append(line)
    use = f"  cores {found.cores:.0%} by the ranks, {found.others:.0%} by others"
    return [*said, use + (f"; void: {found.void}" if found.void else "")]


def summary(all_found: Sequence[Found]) -> list[str]:
    """Say what was reached."""
    said = []
    for found in all_found:
        wanted = (
            f"{LINK_TO_REACH:.0%} of the link and "
            f"{RATIO_TO_REACH[found.scenario.per_host]:g}x {PEERS[0]}"
        )
        verdict = "void" if found.void else "reached" if found.reached else "NOT reached"
        said.append(f"{found.scenario.name}: {verdict}: {wanted}")
    return said


def as_json(all_found: Sequence[Found]) -> dict[str, Any]:
    """Return all times, and the figures made of them."""
    return {
        "nbytes": NBYTES,
        "hosts": HOSTS,
        "scenarios": [
            {
                "per_host": found.scenario.per_host,
                "rate_bits_per_s": found.scenario.rate_bits_per_s,
                "times_s": {name: list(times) for name, times in found.times_s.items()},
                "link": {name: found.link(name) for name in found.times_s},
                "ratio": {
                    name: {peer: found.ratio(name, peer) for peer in PEERS} for name in SUBJECTS
                },
                "to_reach": {
                    "link": LINK_TO_REACH,
                    "ratio": RATIO_TO_REACH[found.scenario.per_host],
                },
                "cores": found.cores,
                "others": found.others,
                "void": found.void,
            }
            for found in all_found
        ],
    }

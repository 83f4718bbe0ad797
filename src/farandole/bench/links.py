"""Benchmarks on links that the kernel slows down; they need Linux, root and iproute2.

`farandole bench live` fits a projection on few Gloo ranks and compares it with many. Ranks sleep
where they would compute, which takes no processor, so that two cores carry sixteen ranks, and the
truth is known: how long computing takes, when each bucket is ready, how fast the links are.

`farandole bench hosts` compares hierarchical with flat all-reduces between two hosts, which are
network namespaces. Implementations take turns, round by round, and figures are ratios within a
round: on which machine they were measured does not matter much.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from farandole.engine.buckets import BUCKET_BYTES, FULL, open_buckets
from farandole.engine.engine import Engine
from farandole.engine.loop import Loop
from farandole.engine.operations import Allreduce
from farandole.engine.signature import Signature
from farandole.model.projection.allreduce import Network, fit_allreduce
from farandole.model.projection.question import LinkSpeed
from farandole.model.projection.replay import Computing, ComputingLine, Replay
from farandole.model.projection.steps import StepFit, StepRow, fit_steps
from farandole.testing.nursery import Nursery
from farandole.testing.shaped import ShapedWorld, Use, address_of, join_group, leave_group
from farandole.testing.worlds import Member
from farandole.transport.gloo import GlooTransport
from farandole.transport.hierarchical.transport import HierarchicalTransport
from farandole.transport.hosts import hosts_of
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import SUM
from farandole.world.machine import VOID_SHARE, disturbance, read_cpu

FEW, MANY = (2, 3, 4), (8, 16)
ERROR_TO_REACH = {8: 0.10, 16: 0.15}
"""Mean absolute error of projections by ranks, fitted on 4 at most."""
_MOST_CORES = 0.6  # above it ranks wait for processors, and not for links
_MOST_WAITED = 0.1  # of the time, by any of their threads for a processor
_KB, _MB = 1024, 1 << 20
_SIZES = (4 * _KB, 64 * _KB)  # of single all-reduces, beside those of the buckets
_UPDATE_S = 0.005
_FASTEST = 100e6  # at first; each scenario has its own rate
_LATENCY_S = 100e-6  # of a message from host to host, which are namespaces of one machine
_GLOO_CHANNELS = 2  # torch's process group works on two collectives at a time

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


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model on a kind of link, and what is planted in its steps."""

    name: str
    rate_bits_per_s: float
    bucket_bytes: tuple[int, ...]
    """In the order in which backward brings them."""
    forward_s: float
    backward_s: float
    per_host: int = 1
    serial_s: float = 0.0
    """What each rank beside the first makes all others wait for, in every step."""
    straggler: float = 1.0
    """How many times as long the second rank computes."""

    @property
    def few(self) -> tuple[int, ...]:
        """The counts to fit: on a host each, or those of one host beside a link that is stated."""
        return FEW if self.per_host == 1 else tuple(n for n in (1, 2, 4) if n <= self.per_host)

    def computing(self) -> Computing:
        """Return what a rank sleeps instead of; buckets come evenly over backward."""
        each_s = self.backward_s / len(self.bucket_bytes)
        numbers = range(1, len(self.bucket_bytes) + 1)
        return Computing(
            batch=1,
            per_host=1,
            sizes=self.bucket_bytes,
            ready_s=tuple(self.forward_s + each_s * number for number in numbers),
            end_s=self.forward_s + self.backward_s,
            update_s=_UPDATE_S,
        )


def _scenario(
    buckets: str,
    computing: str,
    rate: int,
    nbytes: tuple[int, ...],
    forward_s: float,
    backward_s: float,
    **planted: Any,
) -> Scenario:
    words = [f"{key} {value:g}" for key, value in planted.items()]
    name = ", ".join([f"{buckets} behind {computing}", f"{rate} Mbit/s", *words])
    return Scenario(name.replace("_", " "), rate * 1e6, nbytes, forward_s, backward_s, **planted)


_UNEVEN = (64 * _KB, 128 * _KB, 512 * _KB, 512 * _KB, 256 * _KB, 64 * _KB)
_FOUR = ("1 MB in 4 buckets", "300 ms", 50, (256 * _KB,) * 4, 0.1, 0.2)
_LARGE = ("4 MB in 4 buckets", "300 ms", 50, (_MB,) * 4, 0.1, 0.2)
WIDE = (
    _scenario("512 KB in 2 buckets", "400 ms", 20, (256 * _KB,) * 2, 0.15, 0.25),
    _scenario("1 MB in 2 buckets", "60 ms", 25, (512 * _KB,) * 2, 0.02, 0.04),
    _scenario(*_FOUR),
    _scenario("256 KB in 8 buckets", "400 ms", 5, (32 * _KB,) * 8, 0.15, 0.25),
    _scenario("1.5 MB in 6 buckets of several sizes", "300 ms", 20, _UNEVEN, 0.1, 0.2),
    _scenario(*_LARGE),
    _scenario("8 MB in 2 buckets", "500 ms", 100, (4 * _MB,) * 2, 0.2, 0.3),
    _scenario("2 MB in 8 buckets", "2 s", 50, (256 * _KB,) * 8, 0.7, 1.3),
    _scenario(*_LARGE, serial_s=0.006),
    _scenario(*_LARGE, straggler=1.2),
    *(_scenario(*_FOUR, per_host=per_host) for per_host in (2, 3, 4)),
    *(_scenario(*_LARGE, per_host=n, serial_s=0.006) for n in (2, 3, 4)),
    *(_scenario(*_LARGE, per_host=n, straggler=1.2) for n in (2, 3, 4)),
)
"""Plain ones first, then those with a serial part, a straggler, and several ranks on a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What some ranks really took for a step, the slowest rank's time; and for all-reduces."""

    workers: int
    step_s: float
    use: Use
    sweep: tuple[tuple[int, int, float], ...] = ()
    """(workers, bytes, seconds) of single all-reduces; the median of each."""


def run_live(numbers: Sequence[int]) -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """Yield the points of the scenarios of these numbers, from 1, and the lines that show them.

    Raises:
        UsageError: there are no shaped links here.
    """
    key = attrgetter("per_host")
    scenarios = sorted((WIDE[number - 1] for number in numbers), key=key)
    with Nursery((__name__,)) as nursery:
        for per_host, alike in groupby(scenarios, key):
            with ShapedWorld(
                max(MANY), rate_bits_per_s=_FASTEST, per_host=per_host, nursery=nursery
            ) as world:
                for scenario in alike:
                    points = project_many(world, scenario)
                    yield points, [scenario.name, *(point_line(point) for point in points)]


def project_many(
    world: ShapedWorld,
    scenario: Scenario,
    *,
    few: Sequence[int] | None = None,
    many: Sequence[int] = MANY,
    steps: int = 7,
) -> list[dict[str, Any]]:
    """Fit on few ranks, project to many, and let these train."""
    world.set_rate(scenario.rate_bits_per_s)
    sizes = sorted({*_SIZES, *scenario.bucket_bytes})
    fitted = fit(
        scenario, [measure(world, scenario, count, steps, sizes) for count in few or scenario.few]
    )
    measured = [measure(world, scenario, count, steps) for count in many]
    return [compare(scenario, fitted, one) for one in measured]


def measure(
    world: ShapedWorld, scenario: Scenario, workers: int, steps: int, sizes: Sequence[int] = ()
) -> Measurement:
    """Let the first ranks of a world, which has the scenario's rate, train so many steps.

    `sizes` are of single all-reduces to time as well.
    """
    ranks, computing = range(workers), scenario.computing()
    # Twice the law's time at least, whatever the machine does.
    link_s = 8 * sum(scenario.bucket_bytes) / scenario.rate_bits_per_s
    patience_s = 30.0 + 20 * steps * (2 * computing.step_s + 2 * link_s)
    with tempfile.TemporaryDirectory(prefix="farandole-shaped-") as folder:
        world.run(join_group, workers, str(Path(folder, "meeting")), ranks=ranks)
    swept = world.run(time_allreduces, list(sizes), ranks=ranks, timeout_s=patience_s)
    finish = world.measure_use(ranks)
    times_s = world.run(time_steps, scenario, steps, ranks=ranks, timeout_s=patience_s)
    use = finish()
    world.run(leave_group, ranks=ranks)
    slowest_s = [max(each) for each in zip(*swept, strict=True)]
    return Measurement(
        workers=workers,
        step_s=median(max(each) for each in zip(*times_s, strict=True)),
        use=use,
        sweep=tuple((workers, *point) for point in zip(sizes, slowest_s, strict=True)),
    )


def fit(scenario: Scenario, few: Sequence[Measurement]) -> StepFit:
    """Fit what few ranks took; of the scenario its computing is known, and the rate between hosts.

    The rate only where no row tells of it: several ranks on one host.
    """
    inside = fit_allreduce(
        [point for one in few for point in one.sweep], "gloo", around=scenario.bucket_bytes
    )
    assert inside is not None, "a sweep with at least 2 ranks is needed"
    link = None
    if scenario.per_host > 1:
        rate = scenario.rate_bits_per_s / 8
        link = LinkSpeed(name="the link", bytes_per_s=rate, latency_s=_LATENCY_S)
    played = Replay(
        computing=ComputingLine(measured=(scenario.computing(),)),
        network=Network(inside=inside, link=link),
        bucket_bytes=(1, None),
        channels=_GLOO_CHANNELS,
    )
    rows = [
        StepRow(
            workers=one.workers,
            hosts=math.ceil(one.workers / scenario.per_host),
            batch=1,
            step_s=one.step_s,
        )
        for one in few
    ]
    nbytes = sum(scenario.bucket_bytes)
    return fit_steps(rows, link=link, gradient_bytes=nbytes, replays=played.forms())


def compare(scenario: Scenario, fitted: StepFit, one: Measurement) -> dict[str, Any]:
    """Return a projection beside what ranks really took, as the JSON has it."""
    projected = fitted.at(one.workers, math.ceil(one.workers / scenario.per_host), 1)
    use, void = one.use, ""
    if use.cores > _MOST_CORES:
        void = f"the ranks took {use.cores:.0%} of all cores, which is over {_MOST_CORES:.0%}"
    elif use.waited > _MOST_WAITED:
        void = f"a rank waited for a processor for {use.waited:.0%} of the time"
    return {
        "scenario": scenario.name,
        "workers": one.workers,
        "measured_s": one.step_s,
        "projected_s": projected.value,
        "low_s": projected.low,
        "high_s": projected.high,
        "cores": use.cores,
        "waited": use.waited,
        "void": void,
    }


def time_allreduces(_: Member, sizes: Sequence[int], repeats: int = 5) -> list[float]:
    """Return the median time of an all-reduce of each size (on a rank, in a group)."""
    medians_s = []
    for nbytes in sizes:
        tensor = torch.zeros(nbytes // 4)
        times_s = []
        for _repeat in range(repeats + 1):
            dist.barrier()
            begin_s = time.monotonic()
            dist.all_reduce(tensor)
            times_s.append(time.monotonic() - begin_s)
        medians_s.append(median(times_s[1:]))
    return medians_s


def time_steps(member: Member, scenario: Scenario, steps: int) -> list[float]:
    """Return the time of each step, after two that do not count (on a rank, in a group)."""
    computing = scenario.computing()
    slower = scenario.straggler if member.rank == 1 else 1.0
    tensors = [torch.zeros(nbytes // 4) for nbytes in computing.sizes]
    ranks = dist.get_world_size()
    times_s = []
    for _step in range(steps + 2):
        begin_s, pending = time.monotonic(), []
        for tensor, ready_s in zip(tensors, computing.ready_s, strict=True):
            _sleep_until(begin_s + slower * ready_s)
            if ranks > 1:
                pending.append(dist.all_reduce(tensor, async_op=True))
        _sleep_until(begin_s + slower * computing.end_s)
        for work in pending:
            if work is not None:
                work.wait()
        time.sleep(_UPDATE_S + (ranks - 1) * scenario.serial_s)
        times_s.append(time.monotonic() - begin_s)
    return times_s[2:]


def _sleep_until(when_s: float) -> None:
    time.sleep(max(0.0, when_s - time.monotonic()))


def error(point: Mapping[str, Any]) -> float:
    """Return how far a projection is off: 0.1 for 10 % too slow."""
    return float(point["projected_s"] / point["measured_s"] - 1)


def covered(point: Mapping[str, Any]) -> bool:
    """Return whether the measured time is within the projection's interval."""
    return bool(point["low_s"] <= point["measured_s"] <= point["high_s"])


def mean_error(points: Sequence[Mapping[str, Any]], workers: int) -> float | None:
    """Return the mean absolute error of the points that count; None without any."""
    these = [abs(error(one)) for one in points if one["workers"] == workers and not one["void"]]
    return fmean(these) if these else None


def point_line(point: Mapping[str, Any]) -> str:
    """Show a point in one line."""
    void = f"; void: {point['void']}" if point["void"] else ""
    return (
        f"  {point['workers']:3} ranks: {1e3 * point['measured_s']:7.1f} ms measured, "
        f"{1e3 * point['projected_s']:7.1f} projected ({100 * error(point):+5.1f} %), "
        f"{1e3 * point['low_s']:.0f} to {1e3 * point['high_s']:.0f}"
        f"{'' if covered(point) else ', not covered'}; cores {100 * point['cores']:.0f} %, "
        f"waited for {100 * point['waited']:.1f} %{void}"
    )


def live_summary(points: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return all points and their mean errors for the JSON, and lines that say what was reached."""
    lines, errors = [], {}
    for workers, limit in ERROR_TO_REACH.items():
        mean = mean_error(points, workers)
        errors[str(workers)] = {"mean_abs": mean, "to_reach": limit}
        if mean is None:
            lines.append(f"{workers} ranks: all points are void; run it on an idle machine.")
        else:
            reached = f"{'reached' if mean <= limit else 'NOT reached'}: {limit:.0%}"
            lines.append(f"{workers} ranks: {100 * mean:.1f} % mean absolute error, {reached}")
    counted = [covered(one) for one in points if not one["void"]]
    lines.append(f"{sum(counted)} of {len(counted)} points within their 90 % intervals")
    return {"points": list(points), "error": errors}, lines


def run_hosts(*, quick: bool) -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """Yield the figures of one scenario after the other, and the lines that show them.

    Raises:
        UsageError: there are no shaped links here.
    """
    # torch's store warns of every address that has no name, and these have none.
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
    with Nursery(("farandole.torch", __name__), variables=quiet) as nursery:
        for per_host in (2, 4):
            with open_hosts(per_host, nursery) as world:
                for rate, rounds in ((1e9, 5),) if quick else ((1e9, 9), (1e8, 3)):
                    figures = measure_hosts(world, per_host, rate, rounds)
                    yield [figures], hosts_lines(figures)


@contextmanager
def open_hosts(per_host: int, nursery: Nursery) -> Iterator[ShapedWorld]:
    """Give two hosts with so many ranks each, which have opened all implementations."""
    size = HOSTS * per_host
    with ShapedWorld(size, rate_bits_per_s=1e9, per_host=per_host, nursery=nursery) as world:
        with tempfile.TemporaryDirectory(prefix="farandole-hosts-") as folder:
            world.run(prepare, per_host, NBYTES, str(Path(folder, "meeting")), timeout_s=120)
        yield world
        world.run(leave)


def measure_hosts(world: ShapedWorld, per_host: int, rate: float, rounds: int) -> dict[str, Any]:
    """Let all implementations take their turns, in a world that has so many ranks per host."""
    world.set_rate(rate)
    times_s: dict[str, list[float]] = {name: [] for name in (*SUBJECTS, *PEERS)}
    # Flat Gloo with 8 ranks sends three times what the link must carry.
    patience_s = 60.0 + 20 * 8 * NBYTES / rate
    for name in times_s:
        world.run(allreduce, name, timeout_s=patience_s)
    finish, before = world.measure_use(range(world.size)), read_cpu()
    for _ in range(rounds):
        for name, times in times_s.items():
            spans = world.run(allreduce, name, timeout_s=patience_s)
            times.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
    taken, use = disturbance(before, read_cpu(), num_cores=os.cpu_count() or 1), finish()
    others = max(0.0, taken.foreign_share - use.cores)
    return hosts_figures(per_host, rate, times_s, use.cores, others)


def hosts_figures(
    per_host: int,
    rate: float,
    times_s: Mapping[str, Sequence[float]],
    cores: float,
    others: float,
) -> dict[str, Any]:
    """Return the times of a scenario, and the figures made of them, as the JSON has them.

    Args:
        times_s: by implementation, one per round: until the last rank had its result.
        cores: what the ranks used of all cores meanwhile, as a share; `others`: what others did.
    """
    void = f"others took {others:.0%} of the machine, which is over {VOID_SHARE:.0%}"
    return {
        "per_host": per_host,
        "rate_bits_per_s": rate,
        "times_s": times_s,
        "link": {name: 8 * NBYTES / median(times) / rate for name, times in times_s.items()},
        "ratio": {
            name: {
                peer: median(b / a for a, b in zip(times_s[name], times_s[peer], strict=True))
                for peer in PEERS
            }
            for name in SUBJECTS
        },
        "to_reach": {"link": LINK_TO_REACH, "ratio": RATIO_TO_REACH[per_host]},
        "cores": cores,
        "others": others,
        "void": void if others > VOID_SHARE else "",
    }


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
    layout = [(count, "float32") for count in counts]
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
        note, indices = np.zeros(1, np.uint8), range(len(arrays))
        for handle in [buckets.submit(at, state["step"], SUM, FULL, note) for at in indices]:
            state["hierarchical"].wait(handle)
    else:
        buffer = Buffer(data, "float32")
        signature = Signature.reducing("allreduce", "float32", data.shape, SUM)
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


def _title(figures: Mapping[str, Any]) -> str:
    rate = f"{figures['rate_bits_per_s'] / 1e6:g} Mbit/s"
    return f"{HOSTS} hosts with {figures['per_host']} ranks each, {rate}"


def hosts_lines(figures: Mapping[str, Any]) -> list[str]:
    """Show a scenario with one line for each implementation."""
    lines = [_title(figures)]
    for name, times_s in figures["times_s"].items():
        line = (
            f"  {name:20} {1e3 * median(times_s):7.0f} ms "
            f"({1e3 * min(times_s):.0f} to {1e3 * max(times_s):.0f}), "
            f"{100 * figures['link'][name]:3.0f} % of the link"
        )
        ratios = figures["ratio"].get(name, {})
        lines.append(line + "".join(f", {ratio:.2f}x {peer}" for peer, ratio in ratios.items()))
    use = f"  cores {figures['cores']:.0%} by the ranks, {figures['others']:.0%} by others"
    return [*lines, use + (f"; void: {figures['void']}" if figures["void"] else "")]


def hosts_summary(scenarios: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return all figures for the JSON, and lines that say what was reached."""
    lines = []
    for one in scenarios:
        link, ratio = one["link"][SUBJECTS[0]], one["ratio"][SUBJECTS[0]][PEERS[0]]
        reached = link >= one["to_reach"]["link"] and ratio >= one["to_reach"]["ratio"]
        verdict = "void" if one["void"] else "reached" if reached else "NOT reached"
        to_reach = f"{LINK_TO_REACH:.0%} of the link and {one['to_reach']['ratio']:g}x {PEERS[0]}"
        lines.append(f"{_title(one)}: {verdict}: {to_reach}")
    return {"nbytes": NBYTES, "hosts": HOSTS, "scenarios": list(scenarios)}, lines

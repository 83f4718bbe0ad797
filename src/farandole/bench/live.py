"""Projections compared with real Gloo ranks on shaped links: fitted on few, measured on many.

    farandole bench live [--wide] [--json]

It needs Linux, root, iproute2 and an idle machine. Ranks sleep where they would compute, which
takes no processor, so that two cores carry sixteen ranks, and the truth is known: how long
computing takes, when each bucket is ready, how fast the links are.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from farandole.model.projection.allreduce import Network, fit_allreduce
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.replay import (
    Bucket,
    Computing,
    ComputingLine,
    Layout,
    ReplayFit,
    ReplayInputs,
    fit_replay,
)
from farandole.model.projection.steps import StepRow
from farandole.testing.nursery import Nursery
from farandole.testing.shaped import ShapedWorld, Use, join_group, leave_group
from farandole.testing.worlds import Member

FEW, MANY = (2, 3, 4), (8, 16)
TO_REACH = {8: 0.10, 16: 0.15}
"""Mean absolute error by ranks, fitted on 4 at most."""
MOST_CORES = 0.6
"""What ranks may use of all cores: above it they wait for processors, and not for links."""
MOST_WAITED = 0.1
"""What any of their threads may wait for a processor, as a share of the time."""
_KB, _MB, _MBIT = 1024, 1 << 20, 1e6
SIZES = (4 * _KB, 64 * _KB)
"""Of single all-reduces, beside those of the buckets."""
_UPDATE_S = 0.005
_SLOWEST_FACTOR = 20.0
# torch's process group works on two collectives at a time.
_GLOO_CHANNELS = 2
_BATCH = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model on a kind of link."""

    name: str
    rate_bits_per_s: float
    bucket_bytes: tuple[int, ...]
    """In the order in which backward brings them."""
    forward_s: float
    backward_s: float

    def computing(self) -> Computing:
        """Return what a rank sleeps instead of; buckets come evenly over backward."""
        each_s = self.backward_s / len(self.bucket_bytes)
        buckets = tuple(
            Bucket(bytes=nbytes, ready_s=self.forward_s + each_s * (place + 1))
            for place, nbytes in enumerate(self.bucket_bytes)
        )
        end_s = self.forward_s + self.backward_s
        return Computing(batch=_BATCH, per_host=1, buckets=buckets, end_s=end_s, update_s=_UPDATE_S)


_UNEVEN = (64 * _KB, 128 * _KB, 512 * _KB, 512 * _KB, 256 * _KB, 64 * _KB)
WIDE = tuple(
    Scenario(f"{buckets} behind {computing}, {rate} Mbit/s", rate * _MBIT, nbytes, *times_s)
    for buckets, computing, rate, nbytes, *times_s in (
        ("512 KB in 2 buckets", "400 ms", 20, (256 * _KB,) * 2, 0.15, 0.25),
        ("1 MB in 2 buckets", "60 ms", 25, (512 * _KB,) * 2, 0.02, 0.04),
        ("1 MB in 4 buckets", "300 ms", 50, (256 * _KB,) * 4, 0.1, 0.2),
        ("256 KB in 8 buckets", "400 ms", 5, (32 * _KB,) * 8, 0.15, 0.25),
        ("1.5 MB in 6 buckets of several sizes", "300 ms", 20, _UNEVEN, 0.1, 0.2),
        ("4 MB in 4 buckets", "300 ms", 50, (_MB,) * 4, 0.1, 0.2),
        ("8 MB in 2 buckets", "500 ms", 100, (4 * _MB,) * 2, 0.2, 0.3),
        ("2 MB in 8 buckets", "2 s", 50, (256 * _KB,) * 8, 0.7, 1.3),
    )
)
QUICK = WIDE[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What some ranks really took."""

    workers: int
    step_s: float
    """The median of the slowest rank's."""
    use: Use
    sweep: tuple[tuple[int, int, float], ...] = ()
    """(workers, bytes, seconds) of single all-reduces; the median of each."""

    @property
    def void(self) -> str:
        """Say why this does not count; "" when it does."""
        if (cores := self.use.cores) > MOST_CORES:
            return f"the ranks took {cores:.0%} of all cores, which is over {MOST_CORES:.0%}"
        if self.use.waited > MOST_WAITED:
            return f"a rank waited for a processor for {self.use.waited:.0%} of the time"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A projection beside the truth."""

    projected: Prediction
    measured: Measurement

    @property
    def error(self) -> float:
        """Return how far the projection is off: 0.1 for 10 % too slow."""
        return self.projected.value / self.measured.step_s - 1

    @property
    def covered(self) -> bool:
        """Say whether the truth is within the interval."""
        return self.projected.low <= self.measured.step_s <= self.projected.high


def compare_all(scenarios: Sequence[Scenario]) -> Iterator[tuple[Scenario, list[Point]]]:
    """Compare one scenario after the other, in one world.

    Raises:
        UsageError: there are no shaped links here.
    """
    rate = scenarios[0].rate_bits_per_s
    with (
        Nursery((__name__,)) as nursery,
        ShapedWorld(max(MANY), rate_bits_per_s=rate, nursery=nursery) as world,
    ):
        for scenario in scenarios:
            yield scenario, compare(world, scenario)


def compare(
    world: ShapedWorld,
    scenario: Scenario,
    *,
    few: Sequence[int] = FEW,
    many: Sequence[int] = MANY,
    steps: int = 7,
) -> list[Point]:
    """Fit on few ranks, project to many, and let these train."""
    world.set_rate(scenario.rate_bits_per_s)
    sizes = sorted({*SIZES, *scenario.bucket_bytes})
    fitted = fit(scenario, [measure(world, scenario, count, steps, sizes) for count in few])
    return [project(fitted, measure(world, scenario, count, steps)) for count in many]


def measure(
    world: ShapedWorld, scenario: Scenario, workers: int, steps: int, sizes: Sequence[int] = ()
) -> Measurement:
    """Let the first ranks of a world train.

    Args:
        world: has the scenario's rate.
        scenario: what is computed and sent.
        workers: how many ranks; one sends nothing.
        steps: that count; two more come before.
        sizes: of single all-reduces to time as well.
    """
    ranks, computing = range(workers), scenario.computing()
    plan = [(bucket.bytes, bucket.ready_s) for bucket in computing.buckets]
    # Twice the law's time at least, whatever the machine does.
    link_s = 8 * sum(scenario.bucket_bytes) / scenario.rate_bits_per_s
    patience_s = 30.0 + _SLOWEST_FACTOR * steps * (computing.step_s + 2 * link_s)
    with tempfile.TemporaryDirectory(prefix="farandole-shaped-") as folder:
        world.run(join_group, workers, str(Path(folder, "meeting")), ranks=ranks)
    swept = world.run(time_allreduces, list(sizes), ranks=ranks, timeout_s=patience_s)
    finish = world.measure_use(ranks)
    arguments = (plan, computing.end_s, steps)
    times_s = world.run(time_steps, *arguments, ranks=ranks, timeout_s=patience_s)
    use = finish()
    world.run(leave_group, ranks=ranks)
    slowest_s = [max(each) for each in zip(*swept, strict=True)]
    return Measurement(
        workers=workers,
        step_s=statistics.median(max(each) for each in zip(*times_s, strict=True)),
        use=use,
        sweep=tuple((workers, *point) for point in zip(sizes, slowest_s, strict=True)),
    )


def fit(scenario: Scenario, few: Sequence[Measurement]) -> ReplayFit:
    """Fit a replay to what few ranks took; of the scenario only its computing is known."""
    sweep = [point for one in few for point in one.sweep]
    inside = fit_allreduce(sweep, "gloo", around=scenario.bucket_bytes)
    assert inside is not None, "a sweep with at least 2 ranks is needed"
    inputs = ReplayInputs(
        computing=ComputingLine(measured=(scenario.computing(),)),
        network=Network(inside=inside),
        layout=Layout(bucket_bytes=1),
        channels=_GLOO_CHANNELS,
    )
    taken = {one.workers: one.step_s for one in few}
    rows = [StepRow(workers=n, hosts=n, batch=_BATCH, step_s=taken[n]) for n in taken]
    return fit_replay(inputs, rows, overlap=True)


def project(fitted: ReplayFit, one: Measurement) -> Point:
    """Put a projection beside what ranks really took."""
    return Point(projected=fitted.at(one.workers, one.workers, _BATCH), measured=one)


def time_allreduces(_: Member, sizes: Sequence[int], repeats: int = 5) -> list[float]:
    """Return the median time of an all-reduce of each size (on a rank, in a group)."""
    found = []
    for nbytes in sizes:
        tensor = torch.zeros(nbytes // 4)
        times_s = []
        for _repeat in range(repeats + 1):
            dist.barrier()
            begin_s = time.monotonic()
            dist.all_reduce(tensor)
            times_s.append(time.monotonic() - begin_s)
        found.append(statistics.median(times_s[1:]))
    return found


def time_steps(
    _: Member, plan: Sequence[tuple[int, float]], end_s: float, steps: int
) -> list[float]:
    """Return the time of each step, after two that do not count (on a rank, in a group)."""
    buckets = [(torch.zeros(nbytes // 4), ready_s) for nbytes, ready_s in plan]
    alone = not dist.is_initialized() or dist.get_world_size() == 1
    times_s = []
    for _step in range(steps + 2):
        begin_s, pending = time.monotonic(), []
        for tensor, ready_s in buckets:
            _sleep_until(begin_s + ready_s)
            if not alone:
                pending.append(dist.all_reduce(tensor, async_op=True))
        _sleep_until(begin_s + end_s)
        for work in pending:
            if work is not None:
                work.wait()
        time.sleep(_UPDATE_S)
        times_s.append(time.monotonic() - begin_s)
    return times_s[2:]


def _sleep_until(when_s: float) -> None:
    time.sleep(max(0.0, when_s - time.monotonic()))


def mean_error(points: Sequence[Point], workers: int) -> float | None:
    """Return the mean absolute error of the points that count; None without any."""
    these = [one for one in points if one.measured.workers == workers and not one.measured.void]
    return statistics.fmean(abs(one.error) for one in these) if these else None


def lines_of(points: Sequence[Point]) -> list[str]:
    """Write one line for each point."""
    return [
        f"  {one.measured.workers:3} ranks: {1e3 * one.measured.step_s:7.1f} ms measured, "
        f"{1e3 * one.projected.value:7.1f} projected ({100 * one.error:+5.1f} %), "
        f"{1e3 * one.projected.low:.0f} to {1e3 * one.projected.high:.0f}"
        f"{'' if one.covered else ', not covered'}; cores {100 * one.measured.use.cores:.0f} %, "
        f"waited for {100 * one.measured.use.waited:.1f} %"
        f"{f'; void: {one.measured.void}' if one.measured.void else ''}"
        for one in points
    ]


def summary(points: Sequence[Point]) -> list[str]:
    """Say what was reached."""
    lines = []
    for workers, limit in TO_REACH.items():
        error = mean_error(points, workers)
        if error is None:
            lines.append(f"{workers} ranks: all points are void; run it on an idle machine.")
        else:
            reached = f"{'reached' if error <= limit else 'NOT reached'}: {limit:.0%}"
            lines.append(f"{workers} ranks: {100 * error:.1f} % mean absolute error, {reached}")
    counted = [one for one in points if not one.measured.void]
    covered = sum(one.covered for one in counted)
    return [*lines, f"{covered} of {len(counted)} points within their 90 % intervals"]


def as_json(found: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Return the figures by scenario and ranks, and what was reached by ranks."""
    points = [
        {
            "scenario": name,
            "workers": one.measured.workers,
            "measured_s": one.measured.step_s,
            "projected_s": one.projected.value,
            "low_s": one.projected.low,
            "high_s": one.projected.high,
            "void": one.measured.void,
        }
        for name, each in found.items()
        for one in each
    ]
    everything = [one for each in found.values() for one in each]
    errors = {
        str(workers): {"mean_abs": mean_error(everything, workers), "to_reach": limit}
        for workers, limit in TO_REACH.items()
    }
    return {"points": points, "error": errors}

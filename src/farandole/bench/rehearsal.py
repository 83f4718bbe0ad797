"""Training rehearsed on shaped links: ranks sleep where they would compute; Gloo is real.

Sleeping takes no processor, so that two cores carry sixteen ranks, and the truth is known: how long
computing takes, when each bucket is ready, how fast the links are. What a replay makes of few ranks
is then compared with what many of them really take.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.model.projection.records import Bucket, Projected, StepRow
from farandole.model.projection.replay.allreduce import Network, fit_allreduce
from farandole.model.projection.replay.computing import Computing, ComputingLine
from farandole.model.projection.replay.fit import ReplayFit, fit_replay
from farandole.model.projection.replay.inputs import ReplayInputs
from farandole.model.projection.replay.whatif import Layout
from farandole.testing.shaped import ShapedWorld, Use, join_group, leave_group
from farandole.testing.worlds import Member

MOST_CORES = 0.6
"""What ranks may use of all cores: above it they wait for processors, and not for links."""
MOST_WAITED = 0.1
"""What any of their threads may wait for a processor, as a share of the time."""
_SLOWEST_FACTOR = 20.0
# torch's process group works on two collectives at a time.
_GLOO_CHANNELS = 2
_BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A model on a kind of link."""

    name: str
    rate_bits_per_s: float
    bucket_bytes: tuple[int, ...]
    """In the order in which backward brings them."""
    forward_s: float
    backward_s: float
    update_s: float = 0.005

    def computing(self) -> Computing:
        """Return what a rank sleeps instead of; buckets come evenly over backward."""
        each_s = self.backward_s / len(self.bucket_bytes)
        buckets = tuple(
            Bucket(bytes=nbytes, ready_s=self.forward_s + each_s * (place + 1))
            for place, nbytes in enumerate(self.bucket_bytes)
        )
        end_s = self.forward_s + self.backward_s
        return Computing(
            batch=_BATCH, per_host=1, buckets=buckets, end_s=end_s, update_s=self.update_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
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
        if self.use.cores > MOST_CORES:
            return (
                f"the ranks took {self.use.cores:.0%} of all cores, which is over {MOST_CORES:.0%}"
            )
        if self.use.waited > MOST_WAITED:
            return f"a rank waited for a processor for {self.use.waited:.0%} of the time"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A projection beside the truth."""

    workers: int
    projected: Projected
    measured: Rehearsed

    @property
    def error(self) -> float:
        """Return how far the projection is off: 0.1 for 10 % too slow."""
        return self.projected.value / self.measured.step_s - 1

    @property
    def covered(self) -> bool:
        """Say whether the truth is within the interval."""
        return self.projected.low <= self.measured.step_s <= self.projected.high


def rehearse(
    world: ShapedWorld,
    scenario: Scenario,
    workers: int,
    *,
    steps: int,
    sizes: Sequence[int] = (),
    repeats: int = 5,
) -> Rehearsed:
    """Let the first ranks of a world train.

    Args:
        world: has the scenario's rate.
        scenario: what is computed and sent.
        workers: how many ranks; one sends nothing.
        steps: that count; two more come before.
        sizes: of single all-reduces to time as well.
        repeats: of each of those.
    """
    ranks = range(workers)
    computing = scenario.computing()
    plan = [(bucket.bytes, bucket.ready_s) for bucket in computing.buckets]
    # Twice the law's time at least, whatever the machine does.
    link_s = 8 * sum(scenario.bucket_bytes) / scenario.rate_bits_per_s
    patience_s = 30.0 + _SLOWEST_FACTOR * steps * (computing.step_s + 2 * link_s)
    with tempfile.TemporaryDirectory(prefix="farandole-shaped-") as folder:
        world.run(join_group, workers, str(Path(folder, "meeting")), ranks=ranks)
    swept = world.run(time_allreduces, list(sizes), repeats, ranks=ranks, timeout_s=patience_s)
    finish = world.measure_use(ranks)
    times_s = world.run(
        time_steps,
        *(plan, computing.end_s, computing.update_s, steps),
        ranks=ranks,
        timeout_s=patience_s,
    )
    use = finish()
    world.run(leave_group, ranks=ranks)
    return Rehearsed(
        workers=workers,
        step_s=statistics.median(max(each) for each in zip(*times_s, strict=True)),
        use=use,
        sweep=tuple(
            (workers, nbytes, max(rank[place] for rank in swept))
            for place, nbytes in enumerate(sizes)
        ),
    )


def fit(scenario: Scenario, few: Sequence[Rehearsed]) -> ReplayFit:
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
    rows = [
        StepRow(workers=one.workers, hosts=one.workers, batch=_BATCH, step_s=one.step_s)
        for one in few
    ]
    return fit_replay(inputs, rows, overlap=True)


def compare(fitted: ReplayFit, many: Sequence[Rehearsed]) -> list[Compared]:
    """Put projections beside what many ranks really took."""
    return [
        Compared(
            workers=one.workers,
            projected=fitted.at(one.workers, one.workers, _BATCH),
            measured=one,
        )
        for one in many
    ]


def time_allreduces(member: Member, sizes: Sequence[int], repeats: int) -> list[float]:
    """Return the median time of an all-reduce of each size (on a rank, in a group)."""
    import torch
    import torch.distributed as dist

    found = []
    for nbytes in sizes:
        tensor = torch.zeros(nbytes // 4)
        times_s = []
        for _ in range(repeats + 1):
            dist.barrier()
            begin_s = time.monotonic()
            dist.all_reduce(tensor)
            times_s.append(time.monotonic() - begin_s)
        found.append(statistics.median(times_s[1:]))
    return found


def time_steps(
    member: Member,
    plan: Sequence[tuple[int, float]],
    end_s: float,
    update_s: float,
    steps: int,
) -> list[float]:
    """Return the time of each step, after two that do not count (on a rank, in a group)."""
    import torch
    import torch.distributed as dist

    buckets = [(torch.zeros(nbytes // 4), ready_s) for nbytes, ready_s in plan]
    alone = not dist.is_initialized() or dist.get_world_size() == 1
    times_s = []
    for _ in range(steps + 2):
        begin_s = time.monotonic()
        pending = []
        for tensor, ready_s in buckets:
            _sleep_until(begin_s + ready_s)
            if not alone:
                pending.append(dist.all_reduce(tensor, async_op=True))
        _sleep_until(begin_s + end_s)
        for work in pending:
            if work is not None:
                work.wait()
        time.sleep(update_s)
        times_s.append(time.monotonic() - begin_s)
    return times_s[2:]


def _sleep_until(when_s: float) -> None:
    time.sleep(max(0.0, when_s - time.monotonic()))

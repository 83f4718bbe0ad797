"""Projections put to the proof: real Gloo ranks on shaped links, fitted on few, compared on many.

    farandole bench live [--wide] [--json]

It needs Linux, root, iproute2 and an idle machine. How long ranks sleep instead of computing and
how fast the links are is known beforehand, so that errors are against the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from farandole.bench.rehearsal import Compared, Rehearsed, Scenario, compare, fit, rehearse
from farandole.testing.nursery import Nursery
from farandole.testing.shaped import ShapedWorld

FEW, MANY = (2, 3, 4), (8, 16)
TO_REACH = {8: 0.10, 16: 0.15}
"""Mean absolute error by ranks, fitted on 4 at most."""
_KB, _MB, _MBIT = 1024, 1 << 20, 1e6
SIZES = (4 * _KB, 64 * _KB)
"""Of single all-reduces, beside those of the buckets."""

QUICK = (
    Scenario(
        name="512 KB in 2 buckets behind 400 ms, 20 Mbit/s",
        rate_bits_per_s=20 * _MBIT,
        bucket_bytes=(256 * _KB,) * 2,
        forward_s=0.15,
        backward_s=0.25,
    ),
    Scenario(
        name="1 MB in 2 buckets behind 60 ms, 25 Mbit/s",
        rate_bits_per_s=25 * _MBIT,
        bucket_bytes=(512 * _KB,) * 2,
        forward_s=0.02,
        backward_s=0.04,
    ),
)
WIDE = (
    *QUICK,
    Scenario(
        name="1 MB in 4 buckets behind 300 ms, 50 Mbit/s",
        rate_bits_per_s=50 * _MBIT,
        bucket_bytes=(256 * _KB,) * 4,
        forward_s=0.1,
        backward_s=0.2,
    ),
    Scenario(
        name="256 KB in 8 buckets behind 400 ms, 5 Mbit/s",
        rate_bits_per_s=5 * _MBIT,
        bucket_bytes=(32 * _KB,) * 8,
        forward_s=0.15,
        backward_s=0.25,
    ),
    Scenario(
        name="1.5 MB in 6 buckets of several sizes behind 300 ms, 20 Mbit/s",
        rate_bits_per_s=20 * _MBIT,
        bucket_bytes=(64 * _KB, 128 * _KB, 512 * _KB, 512 * _KB, 256 * _KB, 64 * _KB),
        forward_s=0.1,
        backward_s=0.2,
    ),
    Scenario(
        name="4 MB in 4 buckets behind 300 ms, 50 Mbit/s",
        rate_bits_per_s=50 * _MBIT,
        bucket_bytes=(_MB,) * 4,
        forward_s=0.1,
        backward_s=0.2,
    ),
    Scenario(
        name="8 MB in 2 buckets behind 500 ms, 100 Mbit/s",
        rate_bits_per_s=100 * _MBIT,
        bucket_bytes=(4 * _MB,) * 2,
        forward_s=0.2,
        backward_s=0.3,
    ),
    Scenario(
        name="2 MB in 8 buckets behind 2 s, 50 Mbit/s",
        rate_bits_per_s=50 * _MBIT,
        bucket_bytes=(256 * _KB,) * 8,
        forward_s=0.7,
        backward_s=1.3,
    ),
)


def prove(
    world: ShapedWorld,
    scenario: Scenario,
    *,
    few: Sequence[int] = FEW,
    many: Sequence[int] = MANY,
    steps: int = 7,
    repeats: int = 5,
) -> list[Compared]:
    """Fit on few ranks, project to many, and let these train."""
    world.set_rate(scenario.rate_bits_per_s)
    sizes = sorted({*SIZES, *scenario.bucket_bytes})
    seen = [
        rehearse(world, scenario, workers, steps=steps, sizes=sizes, repeats=repeats)
        for workers in few
    ]
    fitted = fit(scenario, seen)
    return compare(fitted, [rehearse(world, scenario, workers, steps=steps) for workers in many])


def mean_error(found: Sequence[Compared], workers: int) -> float | None:
    """Return the mean absolute error of the points that count; None without any."""
    errors = [abs(one.error) for one in found if one.workers == workers and not one.measured.void]
    return fmean(errors) if errors else None


@contextmanager
def shaped_world(ranks: int) -> Iterator[ShapedWorld]:
    """Give a world of so many ranks, with a nursery of its own."""
    with (
        Nursery(("torch", "torch.distributed", "farandole.bench.rehearsal")) as nursery,
        ShapedWorld(ranks, rate_bits_per_s=QUICK[0].rate_bits_per_s, nursery=nursery) as world,
    ):
        yield world


def lines_of(found: Sequence[Compared]) -> list[str]:
    """Write one line for each point."""
    return [
        f"  {one.workers:3} ranks: {1e3 * one.measured.step_s:7.1f} ms measured, "
        f"{1e3 * one.projected.value:7.1f} projected ({100 * one.error:+5.1f} %), "
        f"{1e3 * one.projected.low:.0f} to {1e3 * one.projected.high:.0f}"
        f"{'' if one.covered else ', not covered'}; cores {_use(one.measured)}"
        f"{f'; void: {one.measured.void}' if one.measured.void else ''}"
        for one in found
    ]


def _use(measured: Rehearsed) -> str:
    return f"{100 * measured.use.cores:.0f} %, waited for {100 * measured.use.waited:.1f} %"


def summary(found: Sequence[Compared]) -> list[str]:
    """Say what was reached."""
    said = []
    for workers, limit in TO_REACH.items():
        error = mean_error(found, workers)
        if error is None:
            said.append(f"{workers} ranks: all points are void; run it on an idle machine.")
        else:
            reached = "reached" if error <= limit else "NOT reached"
            said.append(
                f"{workers} ranks: {100 * error:.1f} % mean absolute error, {reached}: {limit:.0%}"
            )
    counted = [one for one in found if not one.measured.void]
    covered = sum(one.covered for one in counted)
    return [*said, f"{covered} of {len(counted)} points within their 90 % intervals"]


def proofs(scenarios: Sequence[Scenario]) -> Iterator[tuple[Scenario, list[Compared]]]:
    """Prove one scenario after the other, in one world.

    Raises:
        UsageError: there are no shaped links here.
    """
    with shaped_world(max(MANY)) as world:
        for scenario in scenarios:
            yield scenario, prove(world, scenario)


def as_json(found: Mapping[str, Sequence[Compared]]) -> dict[str, Any]:
    """Return the figures by scenario and ranks, and what was reached by ranks."""
    everything = [one for each in found.values() for one in each]
    return {
        "points": [
            {
                "scenario": name,
                "workers": one.workers,
                "measured_s": one.measured.step_s,
                "projected_s": one.projected.value,
                "low_s": one.projected.low,
                "high_s": one.projected.high,
                "void": one.measured.void,
            }
            for name, each in found.items()
            for one in each
        ],
        "error": {
            str(workers): {"mean_abs": mean_error(everything, workers), "to_reach": limit}
            for workers, limit in TO_REACH.items()
        },
    }

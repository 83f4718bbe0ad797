"""The demo's comparison of 1 and 2 workers: which launches, what they gave, what that says.

Everything here is values; `cli/demo.py` starts the launches and prints.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import FarandoleError

WORKER_COUNTS = (1, 2)

# A gain smaller than what two equal runs differ by on a busy machine is not called one.
_CLEAR_GAIN = 1.05

# Of all cores. The quiet half of a desktop stays below it; a second job on 2 cores does not.
_BUSY_SHARE = 0.10


class DemoError(FarandoleError, RuntimeError):
    """A launch of the demo did not give a result that can be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch to make."""

    num_workers: int
    repeat: int
    threads_per_worker: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one launch gave."""

    num_workers: int
    repeat: int
    samples_per_s: float
    step_time_s: float
    accuracy: float
    foreign_share: float
    """What other programs used of all cores while it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All launches with one number of workers."""

    num_workers: int
    samples_per_s: float
    """Median over the launches."""
    speedup: float
    """Against the row of one worker."""
    accuracy: float
    """Mean over the launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the demo found."""

    rows: tuple[Row, ...]
    num_pairs: int
    lowest_speedup: float
    """Of the pairs of launches that ran one after the other."""
    highest_speedup: float
    highest_foreign_share: float
    """What other programs used of all cores in the launch that they disturbed most."""
    threads_per_worker: int
    num_cores: int


def plan(*, repeats: int, num_cores: int) -> list[Launch]:
    """Return the launches in order: the counts take turns, so that drift meets both alike.

    One worker gets as many threads as each of two, or the comparison would be between one
    process with the whole machine and two with half of it each.
    """
    threads = max(1, num_cores // max(WORKER_COUNTS))
    return [
        Launch(num_workers=count, repeat=repeat, threads_per_worker=threads, seed=repeat)
        for repeat in range(repeats)
        for count in WORKER_COUNTS
    ]


def command(launch: Launch, *, epochs: int, result: Path) -> list[str]:
    """Return the command line of a launch, the one that a user would type."""
    return [
        *(sys.executable, "-m", "farandole.cli.main", "run"),
        *("-np", str(launch.num_workers), "--threads", str(launch.threads_per_worker), "--"),
        *(sys.executable, "-m", "farandole.labs.digits"),
        *("--epochs", str(epochs), "--seed", str(launch.seed), "--result", str(result)),
    ]


def parse_result(text: str, launch: Launch, *, foreign_share: float) -> Result:
    """Read what rank 0 of a launch wrote, and add what was seen from outside.

    Raises:
        DemoError: The workers did not train together, so that their speed means nothing.
    """
    found = json.loads(text)
    if found["workers"] != launch.num_workers:
        raise DemoError(
            f"The demo asked for {launch.num_workers} workers, but the script saw "
            f"{found['workers']}. Run `farandole env` to see what it reads, and report this."
        )
    if not found["weights_equal"]:
        raise DemoError(
            f"The {launch.num_workers} workers ended with different weights, so their speed is not "
            "that of training together. This is a bug in Farandole; please report it."
        )
    return Result(
        num_workers=launch.num_workers,
        repeat=launch.repeat,
        samples_per_s=found["samples_per_s"],
        step_time_s=found["step_time_s"],
        accuracy=found["accuracy"],
        foreign_share=foreign_share,
    )


def compare(results: Sequence[Result], *, threads_per_worker: int, num_cores: int) -> Comparison:
    """Put the launches together: medians per number of workers, and the spread of the pairs."""
    by_count = {
        count: sorted((r for r in results if r.num_workers == count), key=lambda r: r.repeat)
        for count in WORKER_COUNTS
    }
    speeds = {
        count: statistics.median(r.samples_per_s for r in found)
        for count, found in by_count.items()
    }
    rows = tuple(
        Row(
            num_workers=count,
            samples_per_s=speeds[count],
            speedup=speeds[count] / speeds[1],
            accuracy=statistics.fmean(r.accuracy for r in by_count[count]),
        )
        for count in WORKER_COUNTS
    )
    pairs = [
        two.samples_per_s / one.samples_per_s
        for one, two in zip(by_count[1], by_count[2], strict=True)
    ]
    return Comparison(
        rows=rows,
        num_pairs=len(pairs),
        lowest_speedup=min(pairs),
        highest_speedup=max(pairs),
        highest_foreign_share=max(result.foreign_share for result in results),
        threads_per_worker=threads_per_worker,
        num_cores=num_cores,
    )


def table_lines(comparison: Comparison) -> list[str]:
    """Return the table, header first."""
    lines = ["workers   samples/s   speedup   test accuracy"]
    lines += [
        f"{row.num_workers:>7}   {row.samples_per_s:>9,.0f}   {row.speedup:>7.2f}   "
        f"{row.accuracy:>13.1%}"
        for row in comparison.rows
    ]
    return lines


def sentence(comparison: Comparison) -> str:
    """Return the answer in one sentence, no stronger than the launches allow."""
    one, two = comparison.rows
    low, high = comparison.lowest_speedup, comparison.highest_speedup
    if comparison.num_pairs == 1:
        evidence = "in one pair of runs"
    else:
        evidence = f"{low:.2f} to {high:.2f} in {comparison.num_pairs} pairs of runs"
    threads = comparison.threads_per_worker
    setting = (
        f"on {comparison.num_cores} core{'s' * (comparison.num_cores != 1)}, "
        f"{threads} thread{'s' * (threads != 1)} per worker"
    )
    accuracy = f"test accuracy {two.accuracy:.1%} against {one.accuracy:.1%}"
    if comparison.highest_foreign_share > _BUSY_SHARE:
        return (
            f"Other programs used up to {comparison.highest_foreign_share:.0%} of this machine "
            "during the runs, so these speeds say nothing about a second worker: run the demo "
            f"again when it is quiet; {accuracy}."
        )
    if low >= _CLEAR_GAIN:
        return (
            f"2 workers train {two.speedup:.2f} times as fast as one ({evidence}) "
            f"{setting}; {accuracy}."
        )
    if high <= 1 / _CLEAR_GAIN:
        return (
            f"2 workers train more slowly than one here, at {two.speedup:.2f} of its speed "
            f"({evidence}) {setting}; {accuracy}."
        )
    return (
        f"No clear gain from a second worker here: {two.speedup:.2f} times the speed of one "
        f"({evidence}) {setting}; {accuracy}."
    )

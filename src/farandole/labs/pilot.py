"""What a pilot study says of one worker: how fast it trains, and what it needs around that."""

from __future__ import annotations

from statistics import median

from farandole.labs.lab import Rate
from farandole.model.info.scaling import ScalingInfo
from farandole.study.records import Launch, Study

_GOOD = ("ok", "stopped")


def rate_of(info: ScalingInfo, study: Study) -> Rate | None:
    """Return the rate of one worker; None when no launch of the study tells it.

    Args:
        info: What was found.
        study: The same as records: how long a launch takes beside its steps is not in `info` for
            launches that were ended after a few of them.
    """
    rows = [
        row
        for row in info.launches
        if row.cell.workers == 1
        and not row.cell.today
        and row.throughput is not None
        and row.unit == "samples/s"
    ]
    # On a machine that is never quiet no launch counts for a report; for an estimate of the time
    # that studies take beside the others, it is just right.
    speeds = [row.throughput for row in rows if row.kept] or [row.throughput for row in rows]
    around = [
        seconds
        for launch in study.launches
        if launch.cell.workers == 1 and not launch.cell.today and launch.outcome in _GOOD
        if (seconds := _around_s(launch)) is not None
    ]
    if not speeds or not around:
        return None
    return Rate(samples_per_s=median(filter(None, speeds)), startup_s=median(around))


def _around_s(launch: Launch) -> float | None:
    """Return how long a launch took before its first step ended and after its last one did.

    Where no steps were recorded but figures printed, all of it: rather too much than too little.
    """
    ends = [rank.steps.end_s for rank in launch.ranks if len(rank.steps)]
    if launch.wall_s is None or not ends:
        return launch.wall_s
    first, last = min(float(end[0]) for end in ends), max(float(end[-1]) for end in ends)
    return max(0.0, launch.wall_s - (last - first))

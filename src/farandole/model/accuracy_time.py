"""How long accuracy runs would take, for a study that has made none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from farandole.model.info.curve import Curve
from farandole.model.info.job import JobTime
from farandole.model.measured import Measured
from farandole.study.records import Cell

# --epochs 10, --num-epochs=10, trainer.max_epochs=10
_EPOCHS = re.compile(r"(?:-*|[\w.]+\.)(?:num|max|n|train)?[-_]?epochs(?:=(\d+))?")


def accuracy_time(
    cells: Sequence[Measured], curve: Curve, jobs: Mapping[Cell, JobTime], seeds: int
) -> str:
    """Say what accuracy runs of a curve would take: `about 14 min`, `about 20 s per epoch`.

    A script that came to its end tells by itself. Of one that was ended after an epoch its command
    may say how many there are; otherwise only what each of them takes is known. Empty when not even
    that is.
    """
    measured = [next(c for c in cells if c.cell == point.cell) for point in curve.points]
    whole = [_whole_s(found, jobs.get(found.cell)) for found in measured]
    if None not in whole:
        minutes = seeds * sum(length or 0.0 for length in whole) / 60
        return f"about {max(1, round(minutes))} min"
    each = [_epoch_s(jobs.get(found.cell)) for found in measured]
    if None in each:
        return ""
    seconds = seeds * sum(length or 0.0 for length in each)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s per epoch"
    return f"about {round(seconds / 60)} min per epoch"


def epochs_in(argv: Sequence[str]) -> int | None:
    """Return how many epochs a command asks for by a flag of the usual names."""
    for part, following in itertools.pairwise([*argv, ""]):
        match = _EPOCHS.fullmatch(part.lower())
        if match is None:
            continue
        text = match[1] or (following if part.startswith("-") else "")
        if text.isdecimal() and int(text):
            return int(text)
    return None


def _whole_s(found: Measured, job: JobTime | None) -> float | None:
    lengths = [one.wall_s for one in found.launches if one.outcome == "ok" and one.wall_s]
    if lengths:
        return max(lengths)
    epochs = next((number for one in found.launches if (number := epochs_in(one.argv))), None)
    each = _epoch_s(job)
    if epochs is None or each is None or job is None:
        return None
    return (job.startup_s or 0.0) + epochs * each


def _epoch_s(job: JobTime | None) -> float | None:
    """Return what an epoch takes, with the validation and the checkpoint that belong to it."""
    if job is None or job.job_s is None or not job.epochs:
        return None
    return (job.job_s.value - (job.startup_s or 0.0)) / job.epochs

"""What the fruits lab got wrong, and the right account of it."""

from __future__ import annotations

from farandole.format import listed, percent, plural, seconds, times
from farandole.labs.claims import claims_of
from farandole.labs.columns import HERE, LAB
from farandole.labs.fruits.kind import KIND
from farandole.labs.lab import Correction, Found
from farandole.labs.transfer.corrections import shared_corrections
from farandole.labs.transfer.times import Timed, gained_here, timed


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    return (_shorter(found), _fixed(found), *shared_corrections(found, KIND))


def _shorter(found: Found) -> Correction:
    job, epoch = claims_of("fruits")
    return Correction(
        said=(
            f"4 GPUs are {percent(float(job.claimed) - 1)} faster than 2, and an epoch takes "
            f"{percent(float(epoch.claimed))} less."
        ),
        right=(
            f"The job is {times(job.value)} as fast, that is {percent(job.value - 1)} faster; an "
            f"epoch takes {percent(epoch.value)} less."
        ),
        shown_by=f"{job.sentence} {epoch.sentence} {gained_here(found, KIND)}",
    )


def _fixed(found: Found) -> Correction:
    rows = timed(found, KIND)
    lab = [row for row in rows if row.source == LAB and row.fixed_share is not None]
    shares = [1 - row.fixed_share for row in lab if row.fixed_share is not None]
    each = [_sum(row) for row in lab]
    here = [row for row in rows if row.source == HERE and row.fixed_share is not None]
    beside = [
        f"{percent(1 - row.fixed_share)} on {plural(row.workers, 'worker')}"
        for row in here
        if row.fixed_share is not None
    ]
    return Correction(
        said="The job time is taken for the time of training.",
        right=(
            f"Ten epochs are only {percent(min(shares))} to {percent(max(shares))} of the jobs: "
            "the rest is what a job takes beside them. Epochs tell how training scales."
        ),
        shown_by=f"{listed(each)}."
        + (f" Here passes over the data are {listed(beside)} of the job." if beside else ""),
    )


def _sum(row: Timed) -> str:
    assert row.epoch_s is not None
    assert row.job_s is not None
    trained_s = (row.epochs or 0) * row.epoch_s.value
    return (
        f"{row.epochs:.0f} x {seconds(row.epoch_s.value)} are {seconds(trained_s)} of "
        f"{seconds(row.job_s.value)} on {row.workers}"
    )

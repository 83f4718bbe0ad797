"""What the caltech lab got wrong, and the right account of it."""

from __future__ import annotations

from farandole.format import percent, seconds, times
from farandole.labs.caltech.kind import KIND
from farandole.labs.lab import Correction, Found
from farandole.labs.transfer.corrections import shared_corrections
from farandole.labs.transfer.times import Timed, gained_here, published_times
from farandole.labs.transfer.utilisation import input_words


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    rows = {
        (row.device, row.workers): row
        for row in published_times(found.published.get(KIND.published))
    }
    return (_off(rows, found), _devices(rows, found), *shared_corrections(found, KIND))


def _off(rows: dict[tuple[str, int], Timed], found: Found) -> Correction:
    two, four = rows["T4", 2], rows["T4", 4]
    assert two.epoch_s is not None
    assert two.job_s is not None
    assert four.epoch_s is not None
    slow, fast = two.epoch_s.value, four.epoch_s.value
    epochs = two.epochs or 0
    return Correction(
        said=f"An epoch takes {slow:.0f} s on 2 T4 and {fast:.0f} s on 4.",
        right=(
            f"That is {times(slow / fast)} for twice the workers, more than linear, and "
            f"{epochs:.0f} such epochs last longer than the whole job: one of the figures is off."
        ),
        shown_by=(
            f"{slow:.0f} / {fast:.0f} is {slow / fast:.2f}; {epochs:.0f} x {slow:.0f} s are "
            f"{seconds(epochs * slow)}, the job took {seconds(two.job_s.value)}, which leaves at "
            f"most {two.job_s.value / epochs:.0f} s an epoch. {gained_here(found, KIND)}"
        ),
    )


def _devices(rows: dict[tuple[str, int], Timed], found: Found) -> Correction:
    old, new = rows["T4", 4], rows["V100", 4]
    assert old.epoch_s is not None
    assert new.epoch_s is not None
    assert old.job_s is not None
    assert new.job_s is not None
    info = found.studies.get("workers")
    here = input_words(info) if info is not None else ["No step was measured here."]
    return Correction(
        said="V100 were used in the place of T4, to be faster.",
        right=(
            "4 T4 are as fast as 4 V100, which compute several times as much: training was not "
            "bound by computing, likely by its input (reading and augmenting photos)."
        ),
        shown_by=(
            f"{old.epoch_s.value:.0f} and {new.epoch_s.value:.0f} s an epoch, "
            f"{seconds(old.job_s.value)} and {seconds(new.job_s.value)} for the job: "
            f"{percent(1 - new.epoch_s.value / old.epoch_s.value)} and "
            f"{percent(1 - new.job_s.value / old.job_s.value)} less. {' '.join(here)}"
        ),
    )

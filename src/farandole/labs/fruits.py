"""The fruits lab: a fine-tuned classifier of fresh and rotten fruit on 1, 2 and 4 GPUs."""

from __future__ import annotations

from farandole.format import percent, times
from farandole.labs.lab import Correction, Found, Rate
from farandole.labs.plan import Workload
from farandole.labs.questions import sentences
from farandole.labs.rows import claims_of
from farandole.labs.transfer import (
    Effort,
    TransferLab,
    configurations,
    gained_here,
    transfer_lab,
)

_TWO, _FOUR = (1, 2), (1, 2, 4)
_EPOCHS = 10

FRUITS = TransferLab(
    name="fruits",
    work=Workload(
        name="fruits",
        script="fruits.py",
        batch=32,
        learning_rate=0.0001,
        guess=Rate(samples_per_s=55.0, startup_s=8.0),
        few_test_samples=32,
    ),
    original_rate=0.1,
    optimizer="Adam, 0.1 x workers",
    epochs=_EPOCHS,
    data="photos of fresh and rotten apples, bananas and oranges",
    train="10,901",
    test="2,698",
    workers="1, 2 and 4",
    devices=("T4",),
    base="fine-tuned",
    quick=Effort(128, 60, 6, 1, _TWO),
    ladder=(
        Effort(128, 60, 6, 1, _TWO),
        Effort(192, 120, 6, 1, _TWO),
        Effort(192, 120, 6, 1, _FOUR),
        Effort(256, 120, 6, 1, _FOUR, recipes=2),
        Effort(256, 240, 6, 2, _FOUR, recipes=2, same_batch=True),
        Effort(256, 240, 6, 2, _FOUR, recipes=2, original=_TWO, same_batch=True),
        Effort(320, 240, 6, 2, _FOUR, recipes=2, original=_TWO, same_batch=True),
        Effort(320, 240, 6, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        Effort(480, 240, 6, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        Effort(480, 240, 8, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        Effort(720, 240, _EPOCHS, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        Effort(1200, 240, _EPOCHS, 3, _FOUR, recipes=3, original=_FOUR, same_batch=True),
        Effort(1200, 240, _EPOCHS, 5, _FOUR, recipes=4, original=_FOUR, same_batch=True),
        Effort(0, 0, _EPOCHS, 5, _FOUR, recipes=4, original=_FOUR, same_batch=True),
    ),
    full=Effort(0, 0, _EPOCHS, 1, _FOUR, recipes=4, original=_FOUR, same_batch=True),
    said="For 1 T4 it only says that accuracy ends about 0.02 above the next.",
)

PASSES = """
{% call(row) each(lab) %}{{ row.epochs | whole }} x \
{{ row.epoch_s.value | seconds }} is {{ (row.epochs * row.epoch_s.value) | seconds }} of \
{{ row.job_s.value | seconds }} with {{ row.workers }}{% endcall %}.
{% if here %}
Here, passes over the training data take {% call(row) each(here) %}
{{ (1 - row.fixed_share) | percent }} of the job with {{ row.workers | count("worker") }}\
{% endcall %}.
{% endif %}
"""


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what this lab got wrong, with the arithmetic on its own figures."""
    job, epoch = claims_of(FRUITS.name)
    rows = [row for row in configurations(FRUITS, found) if row.fixed_share is not None]
    shares = [1 - row.fixed_share for row in rows if row.source != "here"]
    return (
        Correction(
            said=f"4 GPUs are {percent(float(job.claimed) - 1)} faster than 2, and an epoch takes "
            f"{percent(float(epoch.claimed))} less.",
            right=f"The job is {times(job.value)} as fast, that is {percent(job.value - 1)} "
            f"faster; an epoch takes {percent(epoch.value)} less.",
            shown_by=f"{job.sentence} {epoch.sentence} {gained_here(FRUITS, found)}",
        ),
        Correction(
            said="The job time is taken for the time of training.",
            right=f"Ten epochs are only {percent(min(shares))} to {percent(max(shares))} of the "
            "jobs; the rest is usually start-up, loading and validation. Epoch times show how "
            "training scales.",
            shown_by=" ".join(sentences(PASSES, rows=rows)),
        ),
    )


LAB = transfer_lab(
    FRUITS,
    title="fruits: fine-tuning on 1, 2 and 4 workers",
    line="a fine-tuned classifier: job and epoch time, accuracy by epoch, what averaging does",
    corrections=corrections,
)

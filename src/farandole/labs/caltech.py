"""The caltech lab: a new head on a frozen network, 257 categories, 2 to 8 GPUs of two kinds."""

from __future__ import annotations

from farandole.labs.lab import Correction, Found, Rate
from farandole.labs.plan import Workload
from farandole.labs.questions import sentences
from farandole.labs.transfer import (
    Effort,
    Guess,
    TransferLab,
    configurations,
    gained_here,
    input_sentence,
    transfer_lab,
)

_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_EPOCHS = 30

CALTECH = TransferLab(
    name="caltech",
    work=Workload(
        name="caltech",
        script="caltech.py",
        batch=32,
        learning_rate=0.003,
        guess=Rate(samples_per_s=220.0, startup_s=8.0),
        few_test_samples=32,
    ),
    original_rate=1.0,
    optimizer="an unnamed optimizer, 1.0 x workers",
    epochs=_EPOCHS,
    data="Caltech-256: 257 categories of 80 to 827 photos",
    train="24,486 (80 % of 30,607)",
    test="6,121 (20 %)",
    workers="2 and 4 T4, 4 and 8 V100",
    devices=("T4", "V100"),
    base="frozen",
    quick=Effort(240, 60, 6, 1, _TWO),
    ladder=(
        Effort(240, 60, 6, 1, _TWO),
        Effort(300, 100, 6, 1, _TWO),
        Effort(300, 150, 8, 1, _FOUR),
        Effort(400, 150, 10, 1, _FOUR, recipes=2),
        Effort(400, 300, 10, 2, _FOUR, recipes=2, same_batch=True),
        Effort(400, 300, 10, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        Effort(600, 300, 12, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        Effort(800, 300, 15, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        Effort(1200, 300, 15, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        Effort(1200, 300, _EPOCHS, 3, _FOUR, recipes=3, original=_FOUR, same_batch=True),
        Effort(1200, 300, _EPOCHS, 5, _FOUR, recipes=4, original=_FOUR, same_batch=True),
        Effort(0, 0, _EPOCHS, 5, _EIGHT, recipes=4, original=_FOUR, same_batch=True),
    ),
    full=Effort(0, 0, _EPOCHS, 1, _EIGHT, recipes=4, original=_FOUR, same_batch=True),
    guess=Guess(workers=16, device="V100", stable_epoch=30.0, job_s=690.0, epoch_s=22.0),
)

OFF = """
An epoch takes {{ slow | whole }} s on 2 T4 and {{ fast | whole }} s on 4.
That is {{ (slow / fast) | times }} with twice the workers, more than linear, and \
{{ epochs | whole }} such epochs take longer than the whole job: one of the figures is wrong.
{{ slow | whole }} / {{ fast | whole }} is {{ "%.2f" | format(slow / fast) }}; \
{{ epochs | whole }} x {{ slow | whole }} s is {{ (epochs * slow) | seconds }}, but the job took \
{{ job_s | seconds }}, which leaves at most {{ (job_s / epochs) | whole }} s per epoch. \
{{ measured }}
"""
DEVICES = """
{{ old.epoch_s.value | whole }} and {{ new.epoch_s.value | whole }} s per epoch, \
{{ old.job_s.value | seconds }} and {{ new.job_s.value | seconds }} for the job: \
{{ (1 - new.epoch_s.value / old.epoch_s.value) | percent }} and \
{{ (1 - new.job_s.value / old.job_s.value) | percent }} less. {{ measured }}
"""


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what this lab got wrong, with the arithmetic on its own figures."""
    rows = {row.configuration: row for row in configurations(CALTECH, found)}
    two, four, faster = (rows[f"the lab, {which}"] for which in ("2 T4", "4 T4", "4 V100"))
    said, right, shown_by = sentences(
        OFF,
        slow=two.epoch_s.value,
        fast=four.epoch_s.value,
        epochs=two.epochs,
        job_s=two.job_s.value,
        measured=gained_here(CALTECH, found),
    )
    info = found.studies.get("workers")
    measured = input_sentence(info) if info else "No step was measured here."
    return (
        Correction(said=said, right=right, shown_by=shown_by),
        Correction(
            said="V100 were used in place of T4, to be faster.",
            right="4 T4 are as fast as 4 V100, which compute several times as much: training was "
            "not bound by computing, usually a sign of slow input (reading and augmenting photos).",
            shown_by=sentences(DEVICES, old=four, new=faster, measured=measured)[0],
        ),
    )


LAB = transfer_lab(
    CALTECH,
    title="caltech: a new head on a frozen network, and what 16 workers would do",
    line="a frozen network: epochs to a stable accuracy by workers, devices, what 16 would do",
    corrections=corrections,
)

"""The caltech lab: its script, its sizes, and what the original was."""

from __future__ import annotations

from farandole.labs.lab import Rate
from farandole.labs.training import Workload
from farandole.labs.transfer.kind import Guess, Kind, rung

_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_EPOCHS = 30

KIND = Kind(
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
    device="T4 and V100 GPUs",
    base="frozen",
    quick=rung(240, 60, 6, 1, _TWO),
    ladder=(
        rung(240, 60, 6, 1, _TWO),
        rung(300, 100, 6, 1, _TWO),
        rung(300, 150, 8, 1, _FOUR),
        rung(400, 150, 10, 1, _FOUR, recipes=2),
        rung(400, 300, 10, 2, _FOUR, recipes=2, same_batch=True),
        rung(400, 300, 10, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        rung(600, 300, 12, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        rung(800, 300, 15, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        rung(1200, 300, 15, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        rung(1200, 300, _EPOCHS, 3, _FOUR, recipes=3, original=_FOUR, same_batch=True),
        rung(1200, 300, _EPOCHS, 5, _FOUR, recipes=4, original=_FOUR, same_batch=True),
        rung(0, 0, _EPOCHS, 5, _EIGHT, recipes=4, original=_FOUR, same_batch=True),
    ),
    full=rung(0, 0, _EPOCHS, 1, _EIGHT, recipes=4, original=_FOUR, same_batch=True),
    guess=Guess(workers=16, device="V100", stable_epoch=30.0, job_s=690.0, epoch_s=22.0),
)

"""The fruits lab: its script, its sizes, and what the original was."""

from __future__ import annotations

from farandole.labs.lab import Rate
from farandole.labs.training import Workload
from farandole.labs.transfer.kind import Kind, rung

_TWO, _FOUR = (1, 2), (1, 2, 4)
_EPOCHS = 10

KIND = Kind(
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
    device="T4 GPUs",
    base="fine-tuned",
    quick=rung(128, 60, 6, 1, _TWO),
    ladder=(
        rung(128, 60, 6, 1, _TWO),
        rung(192, 120, 6, 1, _TWO),
        rung(192, 120, 6, 1, _FOUR),
        rung(256, 120, 6, 1, _FOUR, recipes=2),
        rung(256, 240, 6, 2, _FOUR, recipes=2, same_batch=True),
        rung(256, 240, 6, 2, _FOUR, recipes=2, original=_TWO, same_batch=True),
        rung(320, 240, 6, 2, _FOUR, recipes=2, original=_TWO, same_batch=True),
        rung(320, 240, 6, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        rung(480, 240, 6, 3, _FOUR, recipes=2, original=_TWO, same_batch=True),
        rung(480, 240, 8, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        rung(720, 240, _EPOCHS, 3, _FOUR, recipes=3, original=_TWO, same_batch=True),
        rung(1200, 240, _EPOCHS, 3, _FOUR, recipes=3, original=_FOUR, same_batch=True),
        rung(1200, 240, _EPOCHS, 5, _FOUR, recipes=4, original=_FOUR, same_batch=True),
        rung(0, 0, _EPOCHS, 5, _FOUR, recipes=4, original=_FOUR, same_batch=True),
    ),
    full=rung(0, 0, _EPOCHS, 1, _FOUR, recipes=4, original=_FOUR, same_batch=True),
    said="Of 1 T4 it says only that it ends about 0.02 above the next.",
)

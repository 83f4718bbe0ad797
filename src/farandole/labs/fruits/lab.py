"""The fruits lab as `farandole lab` knows it."""

from __future__ import annotations

from farandole.labs.fruits.kind import KIND
from farandole.labs.transfer.lab import transfer_lab

LAB = transfer_lab(
    KIND,
    title="fruits: fine-tuning on 1, 2 and 4 workers",
    line="a fine-tuned classifier: job and epoch time, accuracy by epoch, what averaging does",
)

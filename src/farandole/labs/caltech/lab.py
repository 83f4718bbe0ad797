"""The caltech lab as `farandole lab` knows it."""

from __future__ import annotations

from farandole.labs.caltech.kind import KIND
from farandole.labs.transfer.lab import transfer_lab

LAB = transfer_lab(
    KIND,
    title="caltech: a new head on a frozen network, and what 16 workers would do",
    line="a frozen network: epochs to a stable accuracy by workers, devices, what 16 would do",
)

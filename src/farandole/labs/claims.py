"""What the labs derived from their own figures, derived again."""

from __future__ import annotations

import csv

from farandole.labs.lab import published_path
from farandole.model.claim import Claim, check_claim


def claims_of(lab: str) -> tuple[Claim, ...]:
    """Return a lab's derived figures, each beside what its own inputs give."""
    lines = published_path("claims").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return tuple(
        check_claim(
            row["what"], row["kind"], float(row["first"]), float(row["second"]), row["claimed"]
        )
        for row in rows
        if row["lab"] == lab
    )

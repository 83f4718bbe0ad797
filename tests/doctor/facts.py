"""Recorded facts made by hand: lines of ranks as the recorder writes them, read as a launch."""

from __future__ import annotations

import json
from typing import Any

from farandole.doctor.check import Diagnosis, chosen, diagnose
from farandole.doctor.facts import Ended, Job, read_rank


def line(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, **fields}


def rank(number: int, *lines: dict[str, Any], size: int = 2, steps: int = 10) -> str:
    """Return a worker's file, with so many steps."""
    head = [line("begin", schema=1, rank=number, size=size, host="n1", begin_s=0.0)]
    ends = [1.0 + step for step in range(steps)]
    block = [line("steps", columns={"end_s": ends})] if steps else []
    return "\n".join(json.dumps(one) for one in [*head, *block, *lines])


def job(*ranks: str, alone: Job | None = None, ended: Ended = "ok") -> Job:
    """Read ranks as one launch."""
    found = tuple(one for text in ranks if (one := read_rank(text)) is not None)
    return Job(ranks=found, workers=len(ranks), ended=ended, alone=alone)


def look(number: str, launch: Job) -> Diagnosis:
    """Apply one check."""
    return diagnose(launch, chosen([number]))

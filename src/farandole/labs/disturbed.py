"""Whether other programs used the machine while a lab was measured."""

from __future__ import annotations

from farandole.format import percent
from farandole.labs.lab import Found


def disturbed(found: Found, study: str) -> list[str]:
    """Say so when launches of a study were disturbed; nothing when all were quiet."""
    record = found.records.get(study)
    busy = [launch for launch in (record.launches if record else ()) if launch.busy]
    if record is None or not busy:
        return []
    most = max((one.foreign_share or 0.0) + (one.steal_share or 0.0) for one in busy)
    return [
        f"Other programs took up to {percent(most)} of the cores during {len(busy)} of "
        f"{len(record.launches)} launches: times and utilisation are not the script's alone."
    ]

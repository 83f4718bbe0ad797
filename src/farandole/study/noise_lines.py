"""The `noise` lines of a rank-N.jsonl, joined into records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from farandole.study.records import Floats, Noise

_Row = tuple[int, int, list[float], list[float]]
"""Update, step, norms before, norms after."""


class NoiseLines:
    """Collects lines; those of one optimizer and one layout of its buckets belong together."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int, tuple[int, ...]], list[_Row]] = {}

    def take(self, content: Mapping[str, Any]) -> None:
        """Add a line.

        Raises:
            KeyError, TypeError, ValueError: it does not hold what it should.
        """
        nbytes = tuple(int(size) for size in content["bytes"])
        before, after = ([float(value) for value in content[name]] for name in ("before", "after"))
        if not len(nbytes) == len(before) == len(after):
            raise ValueError(f"norms of {len(before)} and {len(after)} buckets of {len(nbytes)}")
        row = int(content["update"]), int(content["step"]), before, after
        key = int(content["optimizer"]), int(content.get("parts", 1)), nbytes
        self._rows.setdefault(key, []).append(row)

    def joined(self, samples: Floats) -> tuple[Noise, ...]:
        """Return the records.

        Args:
            samples: of each step of the rank.
        """
        return tuple(
            _noise(optimizer, parts, nbytes, rows, samples)
            for (optimizer, parts, nbytes), rows in self._rows.items()
        )


def _noise(
    optimizer: int, parts: int, nbytes: tuple[int, ...], rows: list[_Row], samples: Floats
) -> Noise:
    # A script that executes itself anew counts from 1 again: its last word holds.
    last = {row[0]: row for row in rows}
    updates, steps, before, after = zip(*(last[update] for update in sorted(last)), strict=True)
    step = np.array(steps, dtype=np.int64)
    # The last steps of a worker that was killed may be missing.
    known = (step >= 0) & (step < len(samples))
    found = np.full(len(step), np.nan)
    found[known] = samples[step[known]]
    return Noise(
        optimizer=optimizer,
        parts=parts,
        bucket_bytes=nbytes,
        update=np.array(updates, dtype=np.int64),
        step=step,
        samples=found,
        before=np.array(before, dtype=np.float64),
        after=np.array(after, dtype=np.float64),
    )

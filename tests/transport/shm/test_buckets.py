"""What a rank of shared buckets can tell of itself (reducing among ranks has its own tests)."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from farandole.transport.reduction import AVERAGE, Array
from farandole.transport.shm.buckets import SharedBuckets

REPLAN, FULL = 1, 2
Answers = list[tuple[int, Array]]


def test_only_moving_data_counts_as_busy() -> None:
    buckets = SharedBuckets(0, 1, lambda mine: [mine], [(1000, "float32")], note_bytes=8)
    note = np.zeros(8, np.uint8)
    try:
        assert buckets.busy_s == 0.0
        for _ in buckets.allreduce(0, 1, AVERAGE, REPLAN, note):
            pass
        assert buckets.busy_s == 0.0, "nothing is reduced when a rank objects"
        for _ in buckets.allreduce(0, 2, AVERAGE, 0, note):
            pass
        assert buckets.busy_s > 0.0
    finally:
        buckets.close()


def result_of(steps: Generator[bool, None, Answers]) -> Answers:
    """What one rank alone comes to."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]


def test_notes_are_read_unless_all_are_full() -> None:
    buckets = SharedBuckets(0, 1, lambda mine: [mine], [(8, "float32")], note_bytes=4)
    try:
        for step, (flags, number) in enumerate([(0, 5), (FULL, 6), (FULL, 6), (0, 7)], start=1):
            note = np.full(4, number, np.uint8)
            steps = buckets.allreduce(0, step, AVERAGE, flags, note)
            ((said, read),) = result_of(steps)
            assert said == flags
            assert read.tolist() == ([] if flags == FULL else [number] * 4)
    finally:
        buckets.close()

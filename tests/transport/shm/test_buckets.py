"""What a rank of shared buckets can tell of itself (reducing among ranks has its own tests)."""

from __future__ import annotations

import numpy as np

from farandole.transport.reduction import AVERAGE
from farandole.transport.shm.buckets import SharedBuckets

REPLAN = 1


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

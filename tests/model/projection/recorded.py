"""Ranks that recorded when their gradients were ready, and the link between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from farandole.model.projection.allreduce import AllReduce
from farandole.study.records import GradientTimes, Link, Rank
from tests.model.build import make_rank, make_steps

MB = 1 << 20
TRUE = AllReduce(law="gloo", setup_s=0.0, latency_s=1e-4, seconds_per_byte=1e-9)
LINK = Link(
    memcpy_bytes_per_s=8e9,
    allreduce=tuple(
        (n, size, TRUE.cost(n, size).seconds) for n in (2, 4) for size in (4096, MB, 64 * MB)
    ),
    latency_s=1e-4,
)


def trained(number: int, workers: int, framework: str) -> Rank:
    """A rank that computes for 0.1 s, the last gradients at its end, and waits 0.02 for others."""
    random = np.random.default_rng(number)
    waits = 0.02 if workers > 1 else 0.0
    steps = make_steps(
        (0.15 + waits + random.normal(0.0, 1e-3, 60)).tolist(),
        data_s=0.01,
        exposed_s=waits,
        communication_s=waits,
    )
    ready_s = np.concatenate([[np.nan], steps.end_s[:-1]]) + 0.11
    steps = replace(steps, ready_s=ready_s, done_s=ready_s + waits)
    times = tuple(
        GradientTimes(
            step=step,
            bytes=(16 * MB, 16 * MB),
            ready_s=(float(ready_s[step] - 0.05), float(ready_s[step])),
        )
        for step in (10, 14, 18)
    )
    return make_rank(number, steps, buckets=times, framework=framework)

"""The all-reduce of a gradient bucket, whose memory the peers can read where it lies.

Options: sizes {series: [elements, repeats]}.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

import farandole.torch as hvd
from farandole.engine.buckets import FULL, open_buckets
from farandole.engine.context import current
from farandole.transport.reduction import SUM

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness


def bucket_worker(given: dict[str, Any]) -> None:
    """Time the engine's all-reduce of one bucket that holds all elements."""
    engine = current().engine
    note = np.zeros(1, np.uint8)
    series = {}
    for name, (num_elements, repeats) in given["sizes"].items():
        buckets = open_buckets(engine, f"bench.{name}", [(num_elements, "float32")], len(note))
        steps = count(1)

        def allreduce(buckets: Any = buckets, steps: Any = steps) -> None:
            engine.wait(buckets.submit(0, next(steps), SUM, FULL, note))

        array = buckets.arrays[0]
        series[name] = harness.time_allreduces(
            allreduce, array, array.fill, num_ranks=hvd.size(), repeats=repeats
        )
        buckets.close()
    harness.report(
        given,
        rank=hvd.rank(),
        series=series,
        facts={"transport": engine.transport.name},
    )


def main() -> None:
    given = harness.options()
    hvd.init()
    bucket_worker(given)
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""Reach the first barrier by Horovod's API and say when. Options: module."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness


def main() -> None:
    given = harness.options()
    hvd = importlib.import_module(given["module"])
    hvd.init()
    hvd.barrier()
    harness.report(given, rank=hvd.rank(), reached_monotonic_s=time.monotonic())
    hvd.shutdown()


if __name__ == "__main__":
    main()

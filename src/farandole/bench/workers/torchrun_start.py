"""Reach the first barrier of a Gloo group under torchrun and say when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness


def main() -> None:
    given = harness.options()
    dist.init_process_group("gloo")
    dist.barrier()
    reached_monotonic_s = time.monotonic()
    harness.forbid_farandole()
    harness.report(given, rank=dist.get_rank(), reached_monotonic_s=reached_monotonic_s)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

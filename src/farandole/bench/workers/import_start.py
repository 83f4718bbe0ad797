"""Import torch and say when it was there: no launcher can start training sooner. Option: rank."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch  # noqa: F401  # importing it is what is timed

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness


def main() -> None:
    given = harness.options()
    harness.forbid_farandole()
    harness.report(given, rank=given["rank"], reached_monotonic_s=time.monotonic())


if __name__ == "__main__":
    main()

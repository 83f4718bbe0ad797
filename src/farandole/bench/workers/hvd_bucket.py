"""The all-reduce of a gradient bucket, whose memory the peers can read where it lies.

Options: sizes {"bucket": [elements, repeats]}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness


def bucket_worker(given: dict[str, Any]) -> None:
    """Time the engine's all-reduce of one bucket and report it as series "bucket".

    To be filled in when the engine offers a bucket: allocate one of `elements` float32, then
    `harness.time_allreduces` as in hvd_allreduce.py.
    """
    harness.report_missing(given, reason="the engine offers no bucket to a benchmark yet")


def main() -> None:
    bucket_worker(harness.options())


if __name__ == "__main__":
    main()

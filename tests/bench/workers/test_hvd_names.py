"""What the rows of names time works, and checks its sums (the times themselves are not tested)."""

from __future__ import annotations

import sys

import pytest

from farandole.testing import FakeWorld, Member, Nursery


def few_names(_: Member) -> tuple[int, int]:
    import farandole.torch as hvd
    from farandole.bench.workers import harness

    # Workers are scripts, which find it beside them.
    sys.modules["harness"] = harness
    from farandole.bench.workers.hvd_names import time_agreement, time_opposite

    hvd.init()
    found = len(time_agreement(hvd, 5, 2)), len(time_opposite(hvd, 7, 3, 2))
    hvd.shutdown()
    return found


@pytest.mark.ranks
def test_each_step_and_round_is_timed(nursery: Nursery) -> None:
    with FakeWorld(2, nursery=nursery) as world:
        assert world.run(few_names) == [(2, 2), (2, 2)]

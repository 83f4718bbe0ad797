from __future__ import annotations

from collections.abc import Callable

import pytest

from farandole.model.projection.records import Bucket
from farandole.model.projection.replay.allreduce import Cost
from farandole.model.projection.replay.step import replay

# Gradients come after 1, 2, 3 and 4 seconds.
BUCKETS = [Bucket(bytes=100, ready_s=float(n)) for n in (1, 2, 3, 4)]


def taking(transfer_s: float, latency_s: float = 0.0) -> Callable[[int], Cost]:
    """Each bucket of 100 bytes takes so long."""
    return lambda nbytes: Cost(latency_s=latency_s, transfer_s=transfer_s * nbytes / 100)


def test_only_the_last_bucket_shows_when_the_others_hide() -> None:
    found = replay(BUCKETS, taking(0.5), update_s=0.25)
    assert found.step_s == pytest.approx(4.5 + 0.25)
    assert found.exposed_s == pytest.approx(0.5)
    assert found.communication_s == pytest.approx(4 * 0.5)


def test_a_slow_link_is_never_idle_after_the_first_bucket() -> None:
    found = replay(BUCKETS, taking(3.0))
    assert found.step_s == pytest.approx(1.0 + 4 * 3.0)
    assert found.exposed_s == pytest.approx(9.0)


def test_without_communication_a_step_is_its_computing() -> None:
    found = replay(BUCKETS, taking(0.0), backward_s=5.0, update_s=1.0)
    assert (found.step_s, found.exposed_s, found.communication_s) == (6.0, 0.0, 0.0)
    assert replay([], taking(1.0), backward_s=5.0).step_s == 5.0


def test_computing_may_go_on_after_the_last_bucket() -> None:
    assert replay(BUCKETS, taking(0.5), backward_s=4.25).exposed_s == pytest.approx(0.25)
    assert replay(BUCKETS, taking(0.5), backward_s=6.0).exposed_s == 0.0


def test_without_overlap_all_of_it_is_exposed() -> None:
    found = replay(BUCKETS, taking(0.5), overlap=False)
    assert found.exposed_s == pytest.approx(2.0)


def test_communication_slows_computing_down() -> None:
    # From 1 on, half a second of each bucket's way costs computing a quarter of a second.
    found = replay(BUCKETS, taking(0.5), contention=2.0)
    assert found.step_s == pytest.approx(4.0 + 3 * 0.25 + 0.5)
    # A processor that does one thing at a time is as good as no overlap.
    assert replay(BUCKETS, taking(0.5), contention=1e9).exposed_s == pytest.approx(2.0)


def test_computing_slows_communication_down_while_it_lasts() -> None:
    # The last bucket goes when nothing is left to compute.
    assert replay(BUCKETS, taking(0.5), slowdown=2.0).exposed_s == pytest.approx(0.5)
    # 0.75 of the third's 1.5 has gone by 4: the rest and the fourth are not slowed down.
    found = replay(BUCKETS[2:], taking(1.5), slowdown=4 / 3)
    assert found.step_s == pytest.approx(4.0 + 0.75 + 1.5)


def test_two_channels_share_the_bytes_and_not_the_latency() -> None:
    together = [Bucket(bytes=100, ready_s=1.0)] * 2
    assert replay(together, taking(1.0, 0.5)).step_s == pytest.approx(1 + 2 * 1.5)
    assert replay(together, taking(1.0, 0.5), channels=2).step_s == pytest.approx(1 + 0.5 + 2.0)
    # Of three, the third waits for a channel, and then has half of the link.
    three = [*together, Bucket(bytes=100, ready_s=1.0)]
    assert replay(three, taking(1.0), channels=2).step_s == pytest.approx(1 + 3.0)


def test_the_order_is_that_of_readiness() -> None:
    assert replay(BUCKETS[::-1], taking(0.5)) == replay(BUCKETS, taking(0.5))


@pytest.mark.parametrize("contention", [1.0, 1.37, 3.0])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_it_ends_whatever_the_figures(contention: float, channels: int) -> None:
    # Sums of these are never round: a rest that no step takes away would go on for ever.
    buckets = [Bucket(bytes=n * 7 + 1, ready_s=(n + 1) / 7) for n in range(50)]
    found = replay(
        buckets, taking(1 / 3, 1 / 11), contention=contention, channels=channels, slowdown=1.13
    )
    assert found.step_s >= 50 / 7
    assert found.communication_s <= found.step_s

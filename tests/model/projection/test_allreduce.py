"""Laws of all-reduces, and their fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.model.projection.allreduce import (
    LAWS,
    AllReduce,
    Cost,
    Network,
    fit_allreduce,
    on_link,
)
from farandole.model.projection.question import LinkSpeed

MIB = 1 << 20
SIZES = [4096 * 4**power for power in range(8)]
LINK = LinkSpeed(name="10Gbit", bytes_per_s=1.25e9, latency_s=50e-6)


def law(name: str, setup_s: float = 1e-4, latency_s: float = 2e-5, rate: float = 1e9) -> AllReduce:
    return AllReduce(law=name, setup_s=setup_s, latency_s=latency_s, seconds_per_byte=1 / rate)


def sweep(true: AllReduce, *counts: int, sizes: list[int] = SIZES) -> list[tuple[int, int, float]]:
    return [(n, size, true.cost(n, size).seconds) for n in counts for size in sizes]


def test_messages_and_bytes_of_each_law() -> None:
    assert LAWS["ring"](4, 100) == (6, 150)
    # Two segments each at least, and no segment above a MiB; each message has its headers.
    assert LAWS["gloo"](4, 100) == (12, 150 + 12 * 340)
    assert LAWS["gloo"](4, 16 * MIB) == (24, 24 * MIB + 24 * 340)
    assert LAWS["tree"](8, 100) == (6, 200)
    assert LAWS["bus"](4, 100) == (3, 400)


@pytest.mark.parametrize("name", list(LAWS))
def test_one_worker_has_nobody_to_talk_to(name: str) -> None:
    assert LAWS[name](1, 100) == (0, 0)
    assert law(name).cost(1, 1e9).seconds == 0


@pytest.mark.parametrize("name", list(LAWS))
def test_a_law_is_found_again(name: str) -> None:
    true = law(name)
    found = fit_allreduce(sweep(true, 2, 3, 4))
    assert found is not None
    assert found.error < 0.01
    for workers in (8, 16):
        for size in (65536, 8 * MIB):
            expected_s = true.cost(workers, size).seconds
            assert found.cost(workers, size).seconds == pytest.approx(expected_s, rel=0.02)


def test_one_count_alone_takes_a_messages_time_from_two_workers() -> None:
    true = law("ring", setup_s=3e-4, latency_s=5e-5)
    found = fit_allreduce(sweep(true, 2), latency_s=5e-5)
    assert found is not None
    assert found.law == "ring"
    assert found.cost(8, 4096).seconds == pytest.approx(true.cost(8, 4096).seconds, rel=0.02)
    # Without it, all that does not depend on the size grows with the workers.
    blind = fit_allreduce(sweep(true, 2))
    assert blind is not None
    assert blind.setup_s == 0
    assert blind.cost(8, 4096).seconds > found.cost(8, 4096).seconds
    # It fits perfectly, and says nothing of others.
    assert found.error == 0.3


def test_sizes_that_a_cache_makes_faster_keep_their_speed() -> None:
    true = law("ring")
    cached = [(n, size, s * (0.5 if size < MIB else 1.0)) for n, size, s in sweep(true, 2, 4)]
    found = fit_allreduce(cached, "ring")
    assert found is not None
    for workers, size, seconds in cached:
        assert found.cost(workers, size).seconds == pytest.approx(seconds, rel=0.05)
    assert replace(found, shape=()).cost(2, 64 * MIB).seconds < 0.9 * cached[7][2]


def test_nothing_measured_is_nothing_fitted() -> None:
    assert fit_allreduce([(1, 4096, 1.0), (2, 4096, 0.0)]) is None


def cost(inside: AllReduce, shape: str, workers: int = 8, nbytes: float = 8e6) -> Cost:
    """Return what an all-reduce takes across 4 hosts with 10 Gbit between them."""
    return Network(inside=inside, link=LINK, shape=shape).cost(workers, 4, nbytes)


def test_a_flat_ring_across_hosts() -> None:
    # 2 workers on each host: of 14 messages 6 go from host to host.
    found = cost(law("ring", setup_s=0.0, latency_s=1e-6, rate=1e10), "flat")
    assert found.latency_s == pytest.approx(8 * 1e-6 + 6 * 50e-6)
    assert found.transfer_s == pytest.approx(2 * 7 / 8 * 8e6 / 1.25e9)
    # Gloo's segments are messages across hosts, too: at least two each.
    ring, gloo = (cost(law(name), "flat", nbytes=1e6) for name in ("ring", "gloo"))
    setup_s = 1e-4
    assert gloo.latency_s - setup_s == pytest.approx(2 * (ring.latency_s - setup_s))


def test_everybody_to_everybody_shares_the_hosts_link() -> None:
    # Two workers of a host send six eighths each, twice; a ring sends seven eighths, twice.
    flat, pairs = (cost(law("ring"), shape).transfer_s for shape in ("flat", "pairwise"))
    assert pairs / flat == pytest.approx((2 * 2 * 6) / (2 * 7))
    shapes = ("flat", "pairwise", "hierarchical")
    each = [cost(law("ring", rate=1e11), shape, workers=4).transfer_s for shape in shapes]
    assert each == pytest.approx([each[0]] * 3)


def test_hosts_exchange_what_their_workers_folded() -> None:
    inside = law("bus", setup_s=0.0, latency_s=1e-6, rate=1e10)
    found = cost(inside, "hierarchical")
    # One message in the memory of a host, six between four hosts; three quarters, twice.
    assert found.latency_s == pytest.approx(1e-6 + 6 * 50e-6)
    assert found.transfer_s == pytest.approx(2 * 3 / 4 * 8e6 / 1.25e9)
    # On a link that is faster than memory, memory sets the pace: 2 workers, 16 MB over the bus.
    fast = LinkSpeed(name="fast", bytes_per_s=1e11, latency_s=1e-6)
    found = Network(inside=inside, link=fast, shape="hierarchical").cost(8, 4, 8e6)
    assert found.transfer_s == pytest.approx(inside.cost(2, 8e6).transfer_s)


def test_one_host_needs_no_link_and_a_link_is_taken_at_its_word() -> None:
    assert Network(inside=law("bus"), link=LINK).cost(4, 1, 1e6) == law("bus").cost(4, 1e6)
    # Measured across hosts: there is nothing to add.
    assert Network(inside=law("ring")).cost(4, 2, 1e6) == law("ring").cost(4, 1e6)
    assert on_link(LINK).cost(2, 1.25e9).seconds == pytest.approx(1.0 + 2 * 50e-6)

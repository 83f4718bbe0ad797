"""Step times from few workers to many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from farandole.errors import DataError
from farandole.model.projection.intervals import floor_sides
from farandole.model.projection.links import parse_link
from farandole.model.projection.records import StepFit, StepRow
from farandole.model.projection.steps.ensemble import fit_steps
from tests.model.projection.clusters import (
    ETHERNET_10,
    ETHERNET_100,
    INFINIBAND,
    LARGE,
    RESNET,
    TINY,
    Cluster,
    Network,
    measure,
    step_s,
)


def small(rows: list[StepRow], workers: int = 4) -> list[StepRow]:
    return [row for row in rows if row.workers <= workers]


@pytest.mark.parametrize("network", [TINY, RESNET, LARGE], ids=["tiny", "resnet", "large"])
@pytest.mark.parametrize(
    "cluster", [ETHERNET_100, ETHERNET_10, INFINIBAND], ids=["100Gbit", "10Gbit", "infiniband"]
)
def test_clusters_of_many_kinds_are_projected(cluster: Cluster, network: Network) -> None:
    fit = fit_steps(small(measure(cluster, network)))
    errors, inside = [], []
    for workers, hosts in ((8, 2), (16, 4), (32, 8), (64, 16)):
        for batch in network.batches:
            true = step_s(cluster, network, workers, hosts, batch)
            said = fit.at(workers, hosts, batch)
            errors.append(abs(math.log(said.value / true)))
            inside.append(said.low <= true <= said.high)
    # Overlap and congestion of these clusters are none of the forms'.
    assert np.mean(errors) < 0.15
    assert np.mean(inside) >= 0.65


def test_intervals_grow_with_distance_and_noise() -> None:
    quiet = fit_steps(small(measure(ETHERNET_10, RESNET, noise=0.01)))
    widths = [math.log(p.high / p.low) for p in (quiet.at(n, n // 4, 32) for n in (8, 16, 32, 64))]
    assert widths == sorted(widths)
    noisy = fit_steps(small(measure(ETHERNET_10, RESNET, noise=0.15)))
    shaken = noisy.at(16, 4, 32)
    assert math.log(shaken.high / shaken.low) > 1.5 * widths[1]


def test_beyond_16_times_there_are_bounds_only() -> None:
    fit = fit_steps(small(measure(ETHERNET_10, RESNET)))
    near, far = fit.at(64, 16, 32), fit.at(128, 32, 32)
    assert not near.indicative
    assert near.ratio == 16
    assert far.indicative
    computing = RESNET.fixed_s + 32 * RESNET.per_sample_s
    assert far.low < 1.1 * computing
    assert far.high > far.value


def test_forms_are_weighted_by_what_they_miss() -> None:
    fit = fit_steps(small(measure(ETHERNET_10, LARGE)))
    weights = [weight for _, weight in fit.forms]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1)
    by_error = sorted(fit.members, key=lambda member: member.error)
    assert [member.form.name for member in by_error] == [name for name, _ in fit.forms]


def test_the_same_rows_in_any_order_give_the_same_fit() -> None:
    rows = small(measure(ETHERNET_10, RESNET))
    first, again = fit_steps(rows).at(32, 8, 32), fit_steps(rows).at(32, 8, 32)
    turned = fit_steps(rows[::-1]).at(32, 8, 32)
    assert first == again
    assert turned.value == pytest.approx(first.value, rel=1e-3)


def test_one_odd_row_and_rows_twice_change_little() -> None:
    rows = small(measure(ETHERNET_10, RESNET, noise=0.02))
    plain = fit_steps(rows).at(16, 4, 32)
    odd = [*rows, replace(rows[-1], step_s=5 * rows[-1].step_s)]
    assert fit_steps(odd).at(16, 4, 32).value == pytest.approx(plain.value, rel=0.1)
    assert fit_steps(rows * 2).at(16, 4, 32).value == pytest.approx(plain.value, rel=0.05)


def test_steps_without_communication_stay_as_long_as_they_are() -> None:
    rows = [
        StepRow(workers=n, hosts=hosts, batch=batch, step_s=0.1 + 0.01 * batch)
        for n, hosts in ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4))
        for batch in (8, 16, 32, 64)
    ]
    said = fit_steps(rows).at(64, 16, 16)
    assert said.value == pytest.approx(0.26, rel=0.1)
    assert said.low < 0.26 * 1.05
    assert said.high < 0.26 * 1.5


def on_a_shared_host(workers: int, hosts: int, batch: int) -> float:
    """Return a step whose workers share a bus for gradients, and memory or loaders."""
    local = math.ceil(workers / hosts)
    computing = (0.05 + 0.02 * batch) * (1 + 0.05 * (local - 1))
    gradients = 0.1 * (local - 1) + 0.05 * (hosts > 1)
    return 0.2 * computing + max(0.8 * computing, gradients)


def test_workers_that_share_a_host_are_projected_to_more_on_it() -> None:
    fit = fit_steps(
        [
            StepRow(workers=n, hosts=hosts, batch=batch, step_s=on_a_shared_host(n, hosts, batch))
            for n, hosts in ((1, 1), (2, 1), (2, 2), (3, 1), (4, 1), (4, 2), (4, 4))
            for batch in (4, 8, 16, 24)
        ]
    )
    assert fit.forms[0][0] == "shared bus"
    for workers, hosts in ((8, 1), (16, 2), (32, 4)):
        for batch in (4, 8, 16, 24):
            true, said = on_a_shared_host(workers, hosts, batch), fit.at(workers, hosts, batch)
            assert said.low <= true <= said.high
            # Forms without a bus count a quarter, and see no reason for such steps.
            assert said.value == pytest.approx(true, rel=0.4)


def test_computing_may_bend_with_the_batch() -> None:
    curve = {8: 0.30, 16: 0.33, 32: 0.50, 64: 0.95}
    rows = [
        StepRow(workers=n, hosts=1, batch=batch, step_s=seconds)
        for n in (1, 2, 4)
        for batch, seconds in curve.items()
    ]
    fit = fit_steps(rows)
    for batch, seconds in curve.items():
        assert fit.at(1, 1, batch).value == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_very_few_rows_give_wide_intervals_and_no_error(count: int) -> None:
    rows = [StepRow(workers=n, hosts=1, batch=32, step_s=0.2 + 0.01 * n) for n in (1, 2, 4)[:count]]
    fit: StepFit = fit_steps(rows)
    said = fit.at(16, 4, 32)
    assert said.low <= said.value <= said.high
    assert 0.15 < said.value < 0.6
    assert said.high / said.low > 1.5
    assert any("Only batch 32 was measured" in sentence for sentence in fit.assumptions)
    assert any("Only one worker" in sentence for sentence in fit.assumptions) == (count == 1)


def exact(batches: Sequence[int], launches: int = 1) -> list[StepRow]:
    """Return rows that any form fits, so that nothing but a floor widens what is said."""
    return [
        StepRow(workers=n, hosts=1, batch=batch, step_s=0.1 + 0.01 * batch)
        for n in (1, 2, 3, 4)
        for batch in batches
        for _ in range(launches)
    ]


@pytest.mark.parametrize("workers", [8, 16, 32, 64])
def test_few_settings_are_never_surer_than_the_floors(workers: int) -> None:
    fast, slow = floor_sides(workers / 4)
    # 4 settings measured five times over are 20 launches, and still 4 settings.
    for rows in (exact([16]), exact([16], launches=5), exact([8, 16, 32, 64])):
        said = fit_steps(rows).at(workers, 1, 16)
        assert math.log(said.value / said.low) >= fast - 1e-9
        assert math.log(said.high / said.value) >= slow - 1e-9


def test_many_settings_may_be_surer_and_so_may_what_was_measured() -> None:
    fast, slow = floor_sides(2)
    many = fit_steps(exact([8, 16, 32, 64, 128])).at(8, 1, 16)
    assert math.log(many.high / many.low) < fast + slow
    inside = fit_steps(exact([16])).at(4, 1, 16)
    assert math.log(inside.high / inside.low) < fast + slow


def test_rows_without_one_worker_will_do() -> None:
    rows = [row for row in small(measure(ETHERNET_100, RESNET)) if row.workers > 1]
    true = step_s(ETHERNET_100, RESNET, 16, 2, 32)
    assert fit_steps(rows).at(16, 2, 32).value == pytest.approx(true, rel=0.25)


def test_a_stated_link_stands_in_for_a_network_that_nobody_measured() -> None:
    rows = [row for row in small(measure(ETHERNET_10, RESNET)) if row.hosts == 1]
    slow, fast = (
        fit_steps(rows, link=parse_link(name), gradient_bytes=RESNET.gradient_bytes)
        for name in ("10Gbit", "100Gbit")
    )
    true = step_s(ETHERNET_10, RESNET, 16, 4, 16)
    said = slow.at(16, 4, 16)
    assert said.low < true < said.high
    assert fast.at(16, 4, 16).value < said.value
    assert "10Gbit is taken to reach about half of its rate" in slow.assumptions[0]


@pytest.mark.parametrize("gradient_bytes", [None, RESNET.gradient_bytes], ids=["guess", "bytes"])
def test_the_latency_of_a_stated_link_counts(gradient_bytes: float | None) -> None:
    rows = [row for row in small(measure(ETHERNET_10, RESNET)) if row.hosts == 1]
    soon, late, later = (
        fit_steps(rows, link=parse_link(f"25Gbit,{latency}"), gradient_bytes=gradient_bytes)
        for latency in ("5us", "10ms", "50ms")
    )
    assert soon.at(4, 1, 16) == later.at(4, 1, 16)
    seconds = [fit.at(16, 4, 16).value for fit in (soon, late, later)]
    assert seconds == sorted(seconds)
    # 6 messages around 4 hosts, or 4 by a tree; what computing hides is no more than one step.
    buckets = 1 if gradient_bytes is None else 4
    added = 4 * buckets * 0.05
    assert added - seconds[0] < seconds[2] - seconds[0] < 6 * buckets * 0.05
    assert seconds[1] > 1.01 * seconds[0]
    assert "a message over it to take 10.0 ms" in late.assumptions[0]
    said = any("latency counts once per step" in sentence for sentence in late.assumptions)
    assert said == (gradient_bytes is None)


def test_what_was_not_measured_is_said() -> None:
    rows = small(measure(ETHERNET_10, RESNET))
    alone = [row for row in rows if row.hosts == 1]
    link = parse_link("25Gbit")
    assert fit_steps(rows).assumptions == ()
    assert "measured is used in place of 25Gbit" in fit_steps(rows, link=link).assumptions[0]
    assert "no link was stated" in fit_steps(alone).assumptions[0]
    assert "how large the gradients are" in fit_steps(alone, link=link).assumptions[1]


def test_a_measured_network_is_not_overruled_by_a_stated_link() -> None:
    rows = small(measure(ETHERNET_10, RESNET))
    plain, told = fit_steps(rows), fit_steps(rows, link=parse_link("nvlink"), gradient_bytes=1e8)
    assert plain.at(16, 4, 32) == told.at(16, 4, 32)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"step_s": 0.0}, "takes 0 s, but must take more than 0"),
        ({"step_s": -1.0}, "takes -1 s"),
        ({"step_s": math.nan}, "takes nan s"),
        ({"step_s": math.inf}, "takes inf s"),
        ({"workers": 0}, "0 workers on 1 hosts"),
        ({"hosts": 3}, "2 workers on 3 hosts"),
        ({"batch": 0}, "a batch of 0"),
    ],
)
def test_rows_that_cannot_be(change: dict[str, float], complaint: str) -> None:
    row = StepRow(workers=2, hosts=1, batch=8, step_s=0.1)
    with pytest.raises(DataError, match=complaint):
        fit_steps([row, replace(row, **change)])  # type: ignore[arg-type]


def test_no_rows() -> None:
    with pytest.raises(DataError, match="no step times to fit"):
        fit_steps([])

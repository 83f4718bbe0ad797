"""Step times: the solver, the forms, and their ensemble."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from farandole.errors import DataError
from farandole.model.projection import steps
from farandole.model.projection.intervals import least_sides
from farandole.model.projection.question import parse_link
from farandole.model.projection.steps import (
    Law,
    Parts,
    Prior,
    Problem,
    StepFit,
    StepRow,
    draw,
    fit_steps,
    leave_out,
    solve,
    step_parts,
)
from farandole.study.records import Floats
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

X = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


def line(parameters: Floats) -> Floats:
    return parameters[:, :1] + parameters[:, 1:2] * X


def problem(observed: Floats, *, sd: float = 100.0, sigma: float = 0.1) -> Problem:
    prior = Prior(lines=np.eye(2), mean=np.zeros(2), sd=np.full(2, sd))
    return Problem(
        log_times=line, observed=observed, weights=np.ones(len(X)), prior=prior, sigma=sigma
    )


def test_a_line_is_found_with_the_textbook_covariance() -> None:
    found = solve(problem(1.0 + 0.5 * X), [np.zeros(2)])
    assert found.parameters == pytest.approx([1.0, 0.5], abs=1e-4)
    design = np.column_stack([np.ones_like(X), X])
    assert found.covariance == pytest.approx(0.1**2 * np.linalg.inv(design.T @ design), rel=1e-3)


def test_one_odd_row_moves_little() -> None:
    observed = 1.0 + 0.5 * X
    observed[5] += 2.0
    plain_slope = np.polyfit(X, observed, 1)[0]
    found = solve(problem(observed), [np.zeros(2)])
    assert abs(found.parameters[1] - 0.5) < 0.3 * abs(plain_slope - 0.5)


def test_a_strong_prior_holds_against_the_rows() -> None:
    found = solve(problem(1.0 + 0.5 * X, sd=1e-4), [np.zeros(2)])
    assert found.parameters == pytest.approx([0.0, 0.0], abs=1e-3)


def test_left_out_residuals_are_those_of_a_fit_without_the_rows() -> None:
    noise = np.array([0.02, -0.01, 0.03, -0.04, 0.01, 0.02])
    observed = 1.0 + 0.5 * X + noise
    labels = np.array([0, 0, 1, 1, 2, 2])
    found = leave_out(solve(problem(observed), [np.zeros(2)]), labels)
    for label in range(3):
        rows = labels == label
        slope, start = np.polyfit(X[~rows], observed[~rows], 1)
        assert found[rows] == pytest.approx(observed[rows] - start - slope * X[rows], abs=2e-3)


def test_draws_have_the_covariance_and_are_the_same_each_time() -> None:
    found = solve(problem(1.0 + 0.5 * X), [np.zeros(2)])
    drawn, shares = draw(found, 2000)
    assert np.cov(drawn.T) == pytest.approx(found.covariance, rel=0.15)
    assert shares.min() > 0.5
    again, _ = draw(found, 2000)
    assert (drawn == again).all()


LAWS: tuple[Law, ...] = ("ring", "slow ring", "hierarchical", "crowded", "bus")
FIXED_S, PER_SAMPLE_S, INSIDE_S, BETWEEN_S = 0.1, 0.01, 0.02, 0.5


def parameters(*, growth: float = 1e-9, jitter: float = 1e-9, sharpness: float = 10.0) -> Floats:
    values = np.full(steps.BATCHES + 2, 0.0)
    values[steps.FIXED] = math.log(FIXED_S)
    values[steps.PER_SAMPLE] = math.log(PER_SAMPLE_S)
    values[steps.JITTER] = math.log(jitter)
    values[steps.INSIDE] = math.log(INSIDE_S)
    values[steps.BETWEEN] = math.log(BETWEEN_S)
    values[steps.INSIDE_GROWTH] = values[steps.BETWEEN_GROWTH] = math.log(growth)
    values[steps.SHARPNESS] = math.log(sharpness)
    values[steps.SHARING] = math.log(1e-9)
    return values


def parts(
    law: Law,
    workers: int,
    hosts: int,
    batch: int = 10,
    *,
    values: Floats | None = None,
    latency_s: float = 0.0,
) -> Parts:
    shape = steps.make_shape(
        np.array([float(workers)]),
        np.array([float(hosts)]),
        np.array([float(batch)]),
        np.log([10.0, 40.0]),
        latency_s=latency_s,
    )
    chosen = parameters() if values is None else values
    return step_parts(law, shape, chosen[None])


@pytest.mark.parametrize("law", LAWS)
def test_one_worker_only_computes(law: Law) -> None:
    values = parameters(growth=0.1, jitter=0.1)
    found = parts(law, 1, 1, values=values)
    assert found.gradients[0, 0] == 0
    assert found.total[0, 0] == pytest.approx(FIXED_S + 10 * PER_SAMPLE_S)


def test_each_byte_passes_a_ring_twice_but_for_ones_own_part() -> None:
    assert parts("ring", 4, 1).gradients[0, 0] == pytest.approx(1.5 * INSIDE_S)
    assert parts("ring", 4, 2).gradients[0, 0] == pytest.approx(1.5 * BETWEEN_S)


def test_a_hierarchy_adds_rings_inside_and_between() -> None:
    expected = 2 * 3 / 4 * INSIDE_S + 2 * 1 / 2 * BETWEEN_S
    assert parts("hierarchical", 8, 2).gradients[0, 0] == pytest.approx(expected)
    assert parts("crowded", 8, 2).gradients[0, 0] == pytest.approx(expected)


def test_each_worker_adds_its_gradients_to_a_bus() -> None:
    assert parts("bus", 8, 1).gradients[0, 0] == pytest.approx(7 * INSIDE_S)
    assert parts("bus", 8, 2).gradients[0, 0] == pytest.approx(3 * INSIDE_S + BETWEEN_S)


@pytest.mark.parametrize(
    ("law", "eight", "two_hosts"), [("ring", 1.75, 1.5), ("hierarchical", 1.75, 1.5), ("bus", 7, 3)]
)
def test_workers_of_a_host_slow_down_each_others_computing(
    law: Law, eight: float, two_hosts: float
) -> None:
    values = parameters()
    values[steps.SHARING] = math.log(0.1)
    alone = FIXED_S + 10 * PER_SAMPLE_S
    assert parts(law, 1, 1, values=values).compute[0, 0] == pytest.approx(alone)
    for hosts, times in ((1, eight), (2, two_hosts)):
        found = parts(law, 8, hosts, values=values).compute[0, 0]
        assert found == pytest.approx(alone * (1 + 0.1 * times))


@pytest.mark.parametrize(
    ("law", "messages"),
    [("ring", 30), ("slow ring", 8), ("hierarchical", 30), ("crowded", 30), ("bus", 30)],
)
def test_messages_between_hosts_take_their_latency(law: Law, messages: int) -> None:
    values = parameters(growth=steps.GROWTH)
    plain = parts(law, 64, 16, values=values).gradients[0, 0]
    late = parts(law, 64, 16, values=values, latency_s=1e-3).gradients[0, 0]
    assert late - plain == pytest.approx(messages * 1e-3)
    inside = parts(law, 4, 1, values=values).gradients[0, 0]
    assert parts(law, 4, 1, values=values, latency_s=1e-3).gradients[0, 0] == inside


@pytest.mark.parametrize("law", LAWS)
def test_growth_costs_more_on_more_workers(law: Law) -> None:
    values = parameters(growth=0.05)
    times = [parts(law, n, n // 4, values=values).gradients[0, 0] for n in (8, 16, 32, 64)]
    assert times == sorted(times)
    # One belief fits all: at 64 workers each law adds between a quarter and a half.
    without = parts(law, 64, 16).gradients[0, 0]
    assert 1.2 < times[-1] / without < 1.6


def test_the_longer_of_two_hides_the_shorter() -> None:
    sharp = parameters(sharpness=1000.0)
    compute = FIXED_S + 10 * PER_SAMPLE_S
    assert parts("ring", 4, 1, values=sharp).total[0, 0] == pytest.approx(compute, rel=1e-3)
    # A fifth of computing hides nothing.
    longer = parts("ring", 4, 2, values=sharp).total[0, 0]
    assert longer == pytest.approx(0.2 * compute + 1.5 * BETWEEN_S, rel=1e-3)


def test_without_overlap_they_add_up() -> None:
    blunt = parameters(sharpness=1e-9)
    total = parts("ring", 4, 2, values=blunt).total[0, 0]
    assert total == pytest.approx(FIXED_S + 10 * PER_SAMPLE_S + 1.5 * BETWEEN_S)


def test_many_hosts_may_differ_from_two() -> None:
    values = parameters()
    values[steps.MANY_HOSTS] = math.log(0.5)
    assert parts("ring", 4, 2, values=values).gradients[0, 0] == pytest.approx(1.5 * BETWEEN_S)
    assert parts("ring", 4, 4, values=values).gradients[0, 0] == pytest.approx(0.75 * BETWEEN_S)


def test_the_slowest_of_n_normal_draws() -> None:
    # Means of the largest of 2 and of 10 standard normal draws, from tables.
    found = steps.slowest(np.array([1.0, 2.0, 10.0, 64.0]))
    assert found[0] == 0
    assert found[1:3] == pytest.approx([0.564, 1.539], abs=0.03)
    assert found[3] > found[2]


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
    assert [member.name for member in by_error] == [name for name, _ in fit.forms]


def test_the_same_rows_in_any_order_give_the_same_fit() -> None:
    rows = small(measure(ETHERNET_10, RESNET))
    first, again = fit_steps(rows).at(32, 8, 32), fit_steps(rows).at(32, 8, 32)
    turned = fit_steps(rows[::-1]).at(32, 8, 32)
    assert first == again
    assert turned.value == pytest.approx(first.value, rel=1e-3)


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
    fast, slow = least_sides(workers / 4)
    # 4 settings measured five times over are 20 launches, and still 4 settings.
    for rows in (exact([16]), exact([16], launches=5), exact([8, 16, 32, 64])):
        said = fit_steps(rows).at(workers, 1, 16)
        assert math.log(said.value / said.low) >= fast - 1e-9
        assert math.log(said.high / said.value) >= slow - 1e-9


def test_many_settings_may_be_surer_and_so_may_what_was_measured() -> None:
    fast, slow = least_sides(2)
    many = fit_steps(exact([8, 16, 32, 64, 128])).at(8, 1, 16)
    assert math.log(many.high / many.low) < fast + slow
    inside = fit_steps(exact([16])).at(4, 1, 16)
    assert math.log(inside.high / inside.low) < fast + slow


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
        ({"workers": 0}, "0 workers on 1 host "),
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

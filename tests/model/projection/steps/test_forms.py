"""Forms of a step's time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farandole.model.projection.steps import forms
from farandole.model.projection.steps.forms import Form, Law, Parts
from farandole.study.records import Floats

LAWS: tuple[Law, ...] = ("ring", "slow ring", "hierarchical", "crowded", "bus")
FIXED_S, PER_SAMPLE_S, INSIDE_S, BETWEEN_S = 0.1, 0.01, 0.02, 0.5


def parameters(*, growth: float = 1e-9, jitter: float = 1e-9, sharpness: float = 10.0) -> Floats:
    values = np.full(forms.BATCHES + 2, 0.0)
    values[forms.FIXED] = math.log(FIXED_S)
    values[forms.PER_SAMPLE] = math.log(PER_SAMPLE_S)
    values[forms.JITTER] = math.log(jitter)
    values[forms.INSIDE] = math.log(INSIDE_S)
    values[forms.BETWEEN] = math.log(BETWEEN_S)
    values[forms.INSIDE_GROWTH] = values[forms.BETWEEN_GROWTH] = math.log(growth)
    values[forms.SHARPNESS] = math.log(sharpness)
    values[forms.SHARING] = math.log(1e-9)
    return values


def parts(
    law: Law,
    workers: int,
    hosts: int,
    batch: int = 10,
    *,
    hidden: float = 1.0,
    values: Floats | None = None,
    latency_s: float = 0.0,
) -> Parts:
    shape = forms.make_shape(
        np.array([float(workers)]),
        np.array([float(hosts)]),
        np.array([float(batch)]),
        np.log([10.0, 40.0]),
        latency_s=latency_s,
    )
    chosen = parameters() if values is None else values
    return forms.parts(Form(name="", law=law, hidden=hidden), shape, chosen[None])


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
    values[forms.SHARING] = math.log(0.1)
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
    values = parameters(growth=forms.GROWTH)
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
    assert parts("ring", 4, 2, values=sharp).total[0, 0] == pytest.approx(1.5 * BETWEEN_S, rel=1e-3)
    half = parts("ring", 4, 2, hidden=0.5, values=sharp).total[0, 0]
    assert half == pytest.approx(0.5 * compute + 1.5 * BETWEEN_S, rel=1e-3)


def test_without_overlap_they_add_up() -> None:
    blunt = parameters(sharpness=1e-9)
    total = parts("ring", 4, 2, values=blunt).total[0, 0]
    assert total == pytest.approx(FIXED_S + 10 * PER_SAMPLE_S + 1.5 * BETWEEN_S)


def test_many_hosts_may_differ_from_two() -> None:
    values = parameters()
    values[forms.MANY_HOSTS] = math.log(0.5)
    assert parts("ring", 4, 2, values=values).gradients[0, 0] == pytest.approx(1.5 * BETWEEN_S)
    assert parts("ring", 4, 4, values=values).gradients[0, 0] == pytest.approx(0.75 * BETWEEN_S)


def test_single_batches_may_stray_from_the_line() -> None:
    values = parameters()
    values[forms.BATCHES :] = [math.log(1.1), math.log(0.9)]
    line = [FIXED_S + batch * PER_SAMPLE_S for batch in (10, 20, 40, 80)]
    found = [parts("ring", 1, 1, batch, values=values).total[0, 0] for batch in (10, 20, 40, 80)]
    middle = math.sqrt(1.1 * 0.9)
    assert found == pytest.approx(
        [line[0] * 1.1, line[1] * middle, line[2] * 0.9, line[3] * 0.9], rel=1e-6
    )


def test_many_batches_share_a_dozen_knots() -> None:
    knots = forms.choose_knots(np.arange(1.0, 101.0))
    assert len(knots) == 12
    assert knots[0] == 0
    assert knots[-1] == pytest.approx(math.log(100))
    assert len(forms.choose_knots(np.array([8.0, 8.0, 16.0]))) == 2


def test_the_slowest_of_n_normal_draws() -> None:
    # Means of the largest of 2 and of 10 standard normal draws, from tables.
    found = forms.slowest(np.array([1.0, 2.0, 10.0, 64.0]))
    assert found[0] == 0
    assert found[1:3] == pytest.approx([0.564, 1.539], abs=0.03)
    assert found[3] > found[2]

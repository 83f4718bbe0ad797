"""Step times: the solver, the forms, and what is projected where the truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from farandole.errors import DataError
from farandole.model.projection import steps
from farandole.model.projection.question import parse_link
from farandole.model.projection.steps import (
    FORMS,
    ClosedForm,
    Parts,
    Places,
    Problem,
    StepRow,
    fit_steps,
    solve,
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


def line_problem(observed: Floats, *, sd: float = 100.0) -> Problem:
    return Problem(
        log_times=lambda parameters: parameters[:, :1] + parameters[:, 1:2] * X,
        observed=observed,
        weights=np.ones(len(X)),
        lines=np.eye(2),
        mean=np.zeros(2),
        sd=np.full(2, sd),
        sigma=0.1,
    )


def test_a_line_is_found_with_the_textbook_covariance() -> None:
    found = solve(line_problem(1.0 + 0.5 * X), [np.zeros(2)])
    assert found.parameters == pytest.approx([1.0, 0.5], abs=1e-4)
    design = np.column_stack([np.ones_like(X), X])
    assert found.curvature == pytest.approx(design.T @ design / 0.1**2, rel=1e-3)
    drawn, shares = found.draw(2000)
    assert np.cov(drawn.T) == pytest.approx(np.linalg.inv(found.curvature), rel=0.15)
    assert shares.sum() == pytest.approx(1)
    assert (drawn == found.draw(2000)[0]).all()


def test_one_odd_row_moves_little_and_a_strong_prior_holds() -> None:
    observed = 1.0 + 0.5 * X
    observed[5] += 2.0
    plain_slope = np.polyfit(X, observed, 1)[0]
    found = solve(line_problem(observed), [np.zeros(2)])
    assert abs(found.parameters[1] - 0.5) < 0.3 * abs(plain_slope - 0.5)
    believed = solve(line_problem(1.0 + 0.5 * X, sd=1e-4), [np.zeros(2)])
    assert believed.parameters == pytest.approx([0.0, 0.0], abs=1e-3)


def test_left_out_residuals_are_those_of_a_fit_without_the_rows() -> None:
    observed = 1.0 + 0.5 * X + np.array([0.02, -0.01, 0.03, -0.04, 0.01, 0.02])
    labels = np.array([0, 0, 1, 1, 2, 2])
    found = solve(line_problem(observed), [np.zeros(2)]).left_out(labels)
    for label in range(3):
        rows = labels == label
        slope, start = np.polyfit(X[~rows], observed[~rows], 1)
        assert found[rows] == pytest.approx(observed[rows] - start - slope * X[rows], abs=2e-3)


FIXED_S, PER_SAMPLE_S, INSIDE_S, BETWEEN_S, WORKER_S = 0.1, 0.01, 0.02, 0.5, 0.003
COMPUTE_S = FIXED_S + 10 * PER_SAMPLE_S


def parts(form: str, workers: int, hosts: int, latency_s: float = 0.0, **logs: float) -> Parts:
    """Return the parts of a step of batch 10; of G, only what `logs` name grows."""
    values = np.full(steps.BATCHES, math.log(1e-12))
    known = {"FIXED": FIXED_S, "PER_SAMPLE": PER_SAMPLE_S, "INSIDE": INSIDE_S}
    known |= {"BETWEEN": BETWEEN_S, "MANY_HOSTS": 1.0, "SHARPNESS": 11.0, "PER_WORKER": WORKER_S}
    for name, value in (known | logs).items():
        values[getattr(steps, name)] = math.log(value)
    closed = ClosedForm(name=form, knots=np.empty(0), crosses_hosts=True, latency_s=latency_s)
    return closed.parts(Places.of([(workers, hosts, 10)]), values[None])


@pytest.mark.parametrize("form", FORMS)
def test_one_worker_only_computes(form: str) -> None:
    assert float(parts(form, 1, 1).total[0, 0]) == pytest.approx(COMPUTE_S, rel=1e-6)


@pytest.mark.parametrize(
    ("form", "workers", "hosts", "gradients_s"),
    [
        ("ring", 4, 1, INSIDE_S * 1.5),
        ("ring", 8, 2, BETWEEN_S * 1.75),
        ("hierarchical ring", 8, 2, INSIDE_S * 1.5 + BETWEEN_S * 1.0),
        ("shared bus", 8, 2, INSIDE_S * 3 + BETWEEN_S * 1.0),
        ("cost per worker", 8, 2, WORKER_S * 7),
        ("ring, nothing hidden", 8, 1, WORKER_S * 6 * 7 / 8),
        ("tree, nothing hidden", 8, 1, WORKER_S * 3 * 3),
    ],
)
def test_what_gradients_cost(form: str, workers: int, hosts: int, gradients_s: float) -> None:
    found = parts(form, workers, hosts)
    assert float(found.shown[0, 0]) == pytest.approx(COMPUTE_S + gradients_s, rel=1e-6)


def test_the_longer_hides_the_shorter_and_growth_jitter_and_latency_add_up() -> None:
    hidden = parts("ring", 4, 1)
    assert float(hidden.total[0, 0]) == pytest.approx(COMPUTE_S, rel=1e-3)
    shown = parts("ring", 4, 1, SHARPNESS=1e-9)
    assert float(shown.total[0, 0]) == pytest.approx(COMPUTE_S + 1.5 * INSIDE_S, rel=1e-6)
    for change in ({"JITTER": 0.1}, {"SHARING": 0.1}, {"INSIDE_GROWTH": 0.5, "SHARPNESS": 1e-9}):
        assert parts("ring", 4, 1, **change).total > hidden.total
    waited = parts("ring", 8, 4, latency_s=0.01, BETWEEN_GROWTH=steps.GROWTH).shown
    growing = parts("ring", 8, 4, BETWEEN_GROWTH=steps.GROWTH).shown
    assert float((waited - growing)[0, 0]) == pytest.approx(2 * 3 * 0.01)


def test_the_slowest_of_n_normal_draws() -> None:
    found = steps.slowest(np.array([1.0, 2.0, 10.0, 64.0]))
    assert found[0] == 0
    assert found[1:3] == pytest.approx([0.564, 1.539], abs=0.03)
    assert found[3] > found[2]


def curve(
    law: Callable[[int], float], counts: Sequence[int], *, spread: bool = False, seed: int = 0
) -> list[StepRow]:
    """Return one row per count of a law with 2 % noise; `spread`: one worker per host."""
    random = np.random.default_rng(seed)
    return [
        StepRow(
            workers=n,
            hosts=n if spread else 1,
            batch=32,
            step_s=law(n) * math.exp(random.normal(0, 0.02)),
        )
        for n in counts
    ]


def serial(n: int) -> float:
    """Return a step whose epoch is a + b/N + c (N - 1)/N."""
    return 0.1 * n * (4 + 40 / n + 3 * (n - 1) / n)


def ring(n: int) -> float:
    return 1 + 0.6 * (n - 1) / n


@pytest.mark.parametrize("law", [serial, ring])
@pytest.mark.parametrize("where", ["one host", "a host each", "100Gbit"])
@pytest.mark.parametrize("most", [4, 8])
def test_planted_laws_are_inside(law: Callable[[int], float], where: str, most: int) -> None:
    inside, errors = {16: 0, 64: 0}, []
    for seed in range(6):
        counts = [n for n in (1, 2, 4, 8) if n <= most]
        rows = curve(law, counts, spread=where == "a host each", seed=seed)
        fit = fit_steps(rows, link=parse_link("100Gbit") if where == "100Gbit" else None)
        for n in inside:
            hosts = {"one host": 1, "a host each": n, "100Gbit": n // most}[where]
            found = fit.at(n, hosts, 32)
            inside[n] += found.low <= law(n) <= found.high
            if n == 64 and not found.indicative:
                errors.append(found.value / law(n) - 1)
    # A ring that was measured inside of a host says nothing of a network that hardly costs.
    if not (law is ring and where == "100Gbit"):
        assert min(inside.values()) >= 5
        assert abs(np.mean(errors or [0.0])) <= 0.35


@pytest.mark.parametrize("counts", [(1, 2, 4), (1, 4), (1, 2)])
def test_a_measured_loss_stays_a_loss(counts: tuple[int, ...]) -> None:
    # Epochs of 10, 20, 40 s on 1, 2, 4 workers: steps grow with the square.
    rows = [StepRow(workers=n, hosts=1, batch=1, step_s=10.0 * n * n) for n in counts]
    fit = fit_steps(rows)
    epoch_s = {n: fit.at(n, 1, 1).value / n for n in (8, 16)}
    assert epoch_s[16] >= epoch_s[8] >= 40
    assert fit.at(16, 1, 1).low / 16 >= 9.999 * max(counts)
    assert fit_steps(rows, link=parse_link("100Gbit")).at(16, 4, 1).value / 16 >= 40


def test_no_more_is_promised_than_the_last_workers_brought() -> None:
    rates = {1: 1.0, 2: 1.9, 4: 3.4, 8: 3.4 * 1.47}
    rows = [StepRow(workers=n, hosts=1, batch=8, step_s=n / rate) for n, rate in rates.items()]
    fit = fit_steps(rows)
    gain = 16 / fit.at(16, 1, 8).value / rates[8]
    assert gain <= 1.4701
    with_link = fit_steps(rows, link=parse_link("nvlink"))
    for hosts in (2, 4):
        assert with_link.at(16, hosts, 8).value >= fit.at(16, 1, 8).value * 0.999


def test_measured_contention_ends_with_the_host() -> None:
    # Workers of a host slow each other down by a tenth, each for itself, and send nothing.
    rows = curve(lambda n: 1 + 0.1 * (n - 1), (1, 2, 4, 8))
    link = parse_link("100Gbit")
    unknown = fit_steps(rows, link=link).at(32, 4, 32)
    told = fit_steps(rows, link=link, contention=lambda n: 1 + 0.1 * (n - 1)).at(32, 4, 32)
    assert told.value < 0.75 * unknown.value
    # Where nobody measured it, the interval holds both readings.
    assert unknown.low < 1.9
    assert unknown.high > 4.0


@pytest.mark.parametrize("network", [TINY, RESNET, LARGE], ids=["tiny", "resnet", "large"])
@pytest.mark.parametrize(
    "cluster", [ETHERNET_100, ETHERNET_10, INFINIBAND], ids=["100Gbit", "10Gbit", "infiniband"]
)
def test_clusters_of_many_kinds_are_projected(cluster: Cluster, network: Network) -> None:
    rows = [row for row in measure(cluster, network) if row.workers <= 4]
    fit = fit_steps(rows)
    errors, inside = [], []
    for workers, hosts in ((8, 2), (16, 4), (32, 8), (64, 16)):
        for batch in network.batches:
            true = step_s(cluster, network, workers, hosts, batch)
            said = fit.at(workers, hosts, batch)
            errors.append(abs(math.log(said.value / true)))
            inside.append(said.low <= true <= said.high)
    # Overlap and congestion of these clusters are none of the forms'.
    assert np.mean(errors) < 0.16
    assert np.mean(inside) >= 0.65
    far = fit.at(128, 32, network.batches[0])
    assert far.indicative
    assert far.low < network.fixed_s + network.batches[0] * network.per_sample_s * 1.1
    assert far.high > far.value


def test_intervals_grow_with_distance_and_noise() -> None:
    quiet, noisy = (
        [row for row in measure(ETHERNET_10, RESNET, noise=noise) if row.workers <= 4]
        for noise in (0.01, 0.15)
    )
    fit = fit_steps(quiet)
    widths = [
        math.log(one.high / one.low) for n in (8, 16, 32, 64) for one in [fit.at(n, n // 4, 32)]
    ]
    assert widths == sorted(widths)
    shaken = fit_steps(noisy).at(16, 4, 32)
    assert math.log(shaken.high / shaken.low) > 1.5 * widths[1]


@pytest.mark.parametrize("places", [(1, 2, 4), (1, 4), (2, 4, 8)])
def test_rounding_does_not_show(places: tuple[int, ...]) -> None:
    """Rows that differ in the twelfth digit, in another order: another processor adds up so."""
    rows = [row for row in measure(ETHERNET_10, RESNET, noise=0.05) if row.workers in places]
    rounded = [replace(row, step_s=row.step_s * (1 + 1e-12)) for row in rows[::-1]]
    for one, other in zip(
        *(fit_steps(each).at_each([(16, 4, 32), (64, 16, 32)]) for each in (rows, rounded)),
        strict=True,
    ):
        for name in ("value", "low", "high"):
            assert getattr(other, name) == pytest.approx(getattr(one, name), rel=2e-3)


def test_forms_are_weighted_by_what_they_miss() -> None:
    fit = fit_steps(curve(ring, (1, 2, 4, 8), spread=True))
    assert sum(weight for _, weight in fit.forms) == pytest.approx(1)
    assert fit.forms[0][0] == "ring, nothing hidden"
    assert fit_steps(curve(serial, (1, 2, 4, 8), spread=True)).forms[0][0] == "cost per worker"


def test_the_latency_of_a_stated_link_counts_and_a_measured_network_overrules_it() -> None:
    rows = curve(lambda n: 1.0, (1, 2, 4))
    near, far = (
        fit_steps(rows, link=parse_link(f"100Gbit,{latency}"), gradient_bytes=4e8).at(32, 8, 32)
        for latency in ("10us", "20ms")
    )
    assert far.value > 1.2 * near.value
    across = [row for row in measure(ETHERNET_10, RESNET) if row.workers <= 4]
    fits = [fit_steps(across, link=link) for link in (None, parse_link("100Gbit"))]
    assert fits[0].at(16, 4, 32) == fits[1].at(16, 4, 32)
    assert "network is used in place of 100Gbit" in fits[1].assumptions[0].text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"step_s": 0.0}, "takes 0 s"),
        ({"step_s": math.inf}, "takes inf s"),
        ({"hosts": 3}, "2 workers on 3 hosts"),
        ({"batch": 0}, "a batch of 0"),
    ],
)
def test_rows_that_cannot_be(change: dict[str, float], complaint: str) -> None:
    row = StepRow(workers=2, hosts=1, batch=8, step_s=0.1)
    with pytest.raises(DataError, match=complaint):
        fit_steps([row, replace(row, **change)])  # type: ignore[arg-type]


def test_no_rows() -> None:
    with pytest.raises(DataError, match="no step times"):
        fit_steps([])

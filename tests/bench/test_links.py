"""Figures of slow links, projections of a known law, and small runs on real links."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.bench import links
from farandole.bench.links import (
    ERROR_TO_REACH,
    NBYTES,
    PEERS,
    SUBJECTS,
    WIDE,
    Measurement,
    Scenario,
    covered,
    error,
    mean_error,
)
from farandole.testing import Member, Nursery
from farandole.testing.shaped import ShapedWorld, Use, why_not

IDLE = Use(cores=0.1, waited=0.01)
LINK_S = 8 * NBYTES / 1e9


def point(workers: int, measured_s: float, void: str = "") -> dict[str, Any]:
    """A projection of one second, between 0.9 and 1.2."""
    found = {"scenario": "a model", "workers": workers, "measured_s": measured_s, "void": void}
    return found | {"projected_s": 1.0, "low_s": 0.9, "high_s": 1.2, "cores": 0.1, "waited": 0.5}


def test_projections_are_shown_with_what_was_reached() -> None:
    good, void = (links.point_line(one) for one in (point(8, 1.25), point(8, 1.0, "busy")))
    assert all(text in good for text in ("1250.0 ms measured", "-20.0 %", "not covered"))
    assert "void: busy" in void
    # Errors are averaged over the points that count.
    counted = [point(8, 1 / 1.1), point(8, 1 / 0.95), point(8, 9.0, "busy")]
    found, lines = links.live_summary([*counted, point(16, 1.1, "busy")])
    assert lines[0].endswith("error, reached: 10%")
    assert "idle machine" in lines[1]
    assert lines[-1] == "2 of 2 points within their 90 % intervals"
    assert json.loads(json.dumps(found))["error"]["8"]["mean_abs"] == pytest.approx(0.075)
    assert "NOT reached" in links.live_summary([point(8, 1.2), point(16, 1.1)])[1][0]


def test_a_world_that_keeps_to_the_law_is_projected() -> None:
    # A link of a MB/s that costs a millisecond per message, and buckets that nothing hides.
    scenario = Scenario("", 8e6, (10**6,), forward_s=0.1, backward_s=0.1)

    def allreduce_s(workers: int, nbytes: int) -> float:
        return 2 * (workers - 1) * 2 * 1e-3 + 2 * (workers - 1) / workers * nbytes / 1e6

    def took(workers: int) -> Measurement:
        sizes = (4096, 10**6)
        return Measurement(
            workers=workers,
            step_s=0.205 + allreduce_s(workers, 10**6),
            use=IDLE,
            sweep=tuple((workers, size, allreduce_s(workers, size)) for size in sizes),
        )

    fitted = links.fit(scenario, [took(2), took(3), took(4)])
    for one in [links.compare(scenario, fitted, took(workers)) for workers in (8, 16)]:
        assert error(one) == pytest.approx(0.0, abs=0.03)
        assert covered(one)
        assert one["void"] == ""
    for use, why in ((Use(cores=0.1, waited=0.5), "waited"), (Use(cores=0.7, waited=0.0), "70%")):
        assert why in links.compare(scenario, fitted, replace(took(8), use=use))["void"]


def figures(link: float, ratio: float, per_host: int = 2, others: float = 0.01) -> dict[str, Any]:
    """Three rounds; the peer drifts with the subject."""
    subject_s = LINK_S / link
    times_s = {name: [subject_s * f for f in (1, 2, 1)] for name in SUBJECTS}
    times_s |= {PEERS[0]: [ratio * subject_s * f for f in (1, 2, 0.5)]}
    times_s |= {PEERS[1]: [2 * ratio * subject_s] * 3}
    return links.hosts_figures(per_host, 1e9, times_s, 0.5, others)


@pytest.mark.parametrize(
    ("link", "ratio", "per_host", "reached"),
    [
        (0.81, 1.36, 2, True),
        (0.79, 1.36, 2, False),
        (0.81, 1.34, 2, False),
        (0.81, 1.51, 4, True),
        (0.81, 1.49, 4, False),
    ],
)
def test_both_figures_of_hosts_must_be_reached(
    link: float, ratio: float, per_host: int, reached: bool
) -> None:
    _, lines = links.hosts_summary([figures(link, ratio, per_host)])
    assert ("NOT reached" in lines[0]) is not reached


def test_hosts_are_shown_with_medians_and_ratios_within_a_round() -> None:
    lines = links.hosts_lines(figures(0.9, 1.5))
    assert lines[0] == "2 hosts with 2 ranks each, 1000 Mbit/s"
    assert "90 % of the link, 1.50x torch gloo, 3.00x flat gloo" in lines[1]
    assert lines[-1] == "  cores 50% by the ranks, 1% by others"
    void = figures(1.0, 2.0, others=0.2)
    assert "void: others took 20% of the machine" in links.hosts_lines(void)[-1]
    found, (line,) = links.hosts_summary([void])
    assert ": void: " in line
    (one,) = json.loads(json.dumps(found))["scenarios"]
    assert one["to_reach"] == {"link": 0.8, "ratio": 1.35}


@pytest.mark.ranks
def test_all_implementations_give_right_sums_on_real_links(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is timed is also checked by the ranks; how long it takes does not matter here."""
    if reason := why_not():
        pytest.skip(f"{reason} (CI runs it as root)")
    monkeypatch.setattr(links, "NBYTES", 3_000_000)
    with links.open_hosts(2, nursery) as world:
        one = links.measure_hosts(world, 2, 1e9, rounds=1)
        share = {name: left_by_host(world, name) for name in (*SUBJECTS, *PEERS)}
    # 2 (n - 1) / n of it for n hosts, and 2 (R - 1) / R by a ring of R ranks; headers and notes
    # come to a few per cent.
    assert all(1.0 <= share[name] < 1.1 for name in SUBJECTS), share
    assert all(share[name] >= 1.5 for name in PEERS), share
    # Nobody is faster than what must leave each host: all of it, once.
    assert all(times[0] > 8 * 3_000_000 / 1.1e9 for times in one["times_s"].values())


def left_by_host(world: ShapedWorld, name: str) -> float:
    """Return the bytes that leave the second host in an all-reduce, as a share of the tensor's."""
    before = world.run(bytes_out)[-1]
    world.run(links.allreduce, name)
    return float(world.run(bytes_out)[-1] - before) / links.NBYTES


def bytes_out(member: Member) -> int:
    """Return what has left this rank's host so far."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (line,) = (text for text in lines if "eth0:" in text)
    return int(line.partition(":")[2].split()[8])


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[ShapedWorld]:
    if reason := why_not():
        pytest.skip(f"{reason} (CI runs it as root)")
    with ShapedWorld(16, rate_bits_per_s=20e6, nursery=nursery) as world:
        yield world


def check(found: list[dict[str, Any]]) -> None:
    """Check the figures to reach, on the points that count; skip for a count that has none."""
    lines = [links.point_line(one) for one in found]
    errors = {workers: mean_error(found, workers) for workers in ERROR_TO_REACH}
    for workers, mean in errors.items():
        assert mean is None or mean <= ERROR_TO_REACH[workers], lines
    counted = [covered(one) for one in found if not one["void"]]
    assert sum(counted) >= 0.85 * len(counted), lines
    if None in errors.values():
        pytest.skip(f"no point of some ranks counts: this machine is busy: {lines}")


@pytest.mark.ranks
def test_few_real_ranks_project_many(world: ShapedWorld) -> None:
    points = [links.project_many(world, scenario, few=(2, 4), steps=3) for scenario in WIDE[:2]]
    check([one for each in points for one in each])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.ranks
def test_few_real_ranks_project_many_in_many_ways() -> None:
    if reason := why_not():
        pytest.skip(f"{reason} (CI runs it as root)")
    check([one for points, _ in links.run_live(range(1, 1 + len(links.WIDE))) for one in points])

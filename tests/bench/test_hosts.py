"""All-reduces between hosts: what is made of the times, and a small run on real links."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.bench import hosts
from farandole.bench.hosts import (
    NBYTES,
    PEERS,
    SUBJECTS,
    Result,
    Scenario,
    as_json,
    lines_of,
    summary,
)
from farandole.testing import Member, Nursery
from farandole.testing.shaped import ShapedWorld, why_not

LINK_S = 8 * NBYTES / 1e9


def found(subject_s: float, torch_s: float, *, per_host: int = 2, others: float = 0.01) -> Result:
    scenario = Scenario(per_host, 1e9, rounds=3)
    # The middle round counts; the peer's drift with the subject's does not.
    times_s = {name: [subject_s * f for f in (1, 2, 1)] for name in SUBJECTS}
    times_s |= {PEERS[0]: [torch_s * f for f in (1, 2, 0.5)], PEERS[1]: [2 * torch_s] * 3}
    return Result(scenario=scenario, times_s=times_s, cores=0.5, others=others)


def test_figures_are_medians_and_ratios_within_a_round() -> None:
    one = found(LINK_S / 0.9, LINK_S / 0.6)
    assert one.link(SUBJECTS[0]) == pytest.approx(0.9)
    assert one.ratio(SUBJECTS[0], PEERS[0]) == pytest.approx(1.5)
    assert one.ratio(SUBJECTS[0], PEERS[1]) == pytest.approx(3.0)


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
def test_both_figures_must_be_reached(
    link: float, ratio: float, per_host: int, reached: bool
) -> None:
    one = found(LINK_S / link, ratio * LINK_S / link, per_host=per_host)
    assert one.reached is reached
    assert ("NOT reached" in summary([one])[0]) is not reached


def test_buckets_are_shown_and_have_no_figure_to_reach() -> None:
    one = found(LINK_S / 0.9, 1.6 * LINK_S / 0.9, per_host=4)
    slow = {name: [2 * t for t in one.times_s[name]] for name in SUBJECTS[1:]}
    one = replace(one, times_s={**one.times_s, **slow})
    assert one.reached
    assert "45 % of the link, 0.80x torch gloo" in lines_of(one)[2]


def test_lines_and_json_say_all() -> None:
    lines = lines_of(found(LINK_S / 0.9, LINK_S / 0.6))
    assert lines[0] == "2 hosts with 2 ranks each, 1000 Mbit/s"
    assert "90 % of the link, 1.50x torch gloo, 3.00x flat gloo" in lines[1]
    assert lines[-1] == "  cores 50% by the ranks, 1% by others"
    void = found(LINK_S, 2 * LINK_S, others=0.2)
    assert "void: others took 20% of the machine" in lines_of(void)[-1]
    assert "void" in summary([void])[0]
    (one,) = json.loads(json.dumps(as_json([void])))["scenarios"]
    assert one["times_s"][PEERS[1]] == pytest.approx([4 * LINK_S] * 3)
    assert one["ratio"][SUBJECTS[1]][PEERS[0]] == pytest.approx(2.0)
    assert one["to_reach"] == {"link": 0.8, "ratio": 1.35}


@pytest.mark.ranks
def test_all_implementations_give_right_sums_on_real_links(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is timed is also checked by the ranks; how long it takes does not matter here."""
    if reason := why_not():
        pytest.skip(f"{reason} (CI runs it as root)")
    monkeypatch.setattr(hosts, "NBYTES", 3_000_000)
    scenario = Scenario(2, 1e9, rounds=1)
    with hosts.open_world(2, nursery) as world:
        one = hosts.measure(world, scenario)
        share = {name: left_by_host(world, name) for name in (*SUBJECTS, *PEERS)}
    # 2 (n - 1) / n of it for n hosts, and 2 (R - 1) / R by a ring of R ranks; headers and notes
    # come to a few per cent.
    assert all(1.0 <= share[name] < 1.1 for name in SUBJECTS), share
    assert all(share[name] >= 1.5 for name in PEERS), share
    assert set(one.times_s) == {*SUBJECTS, *PEERS}
    # Nobody is faster than what must leave each host: all of it, once.
    assert all(times[0] > 8 * 3_000_000 / 1.1e9 for times in one.times_s.values())


def left_by_host(world: ShapedWorld, name: str) -> float:
    """Return the bytes that leave the second host in an all-reduce, as a share of the tensor's."""
    before = world.run(bytes_out)[-1]
    world.run(hosts.allreduce, name)
    return float(world.run(bytes_out)[-1] - before) / hosts.NBYTES


def bytes_out(member: Member) -> int:
    """Return what has left this rank's host so far."""
    (line,) = (
        text for text in Path("/proc/self/net/dev").read_text().splitlines() if "eth0:" in text
    )
    return int(line.partition(":")[2].split()[8])

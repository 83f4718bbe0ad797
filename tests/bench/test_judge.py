"""Rows from launches: what counts, what is compared, what is called reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.bench.contestant import Contestant, Role, Starter
from farandole.bench.judge import Verdict, judge, judge_claim, judge_ranking, usable
from farandole.bench.launch import LaunchRecord
from farandole.bench.rows import Claim, Group, Quantity, RowPlan
from farandole.world.foreign import Disturbance

_CLAIM = Claim(
    text="3 x gloo's speed",
    quantity=Quantity.SPEED_RATIO,
    subject="us",
    against="gloo",
    to_reach=3.0,
    stretch=4.0,
)
_ROW = RowPlan(
    key="r", title="t", series="step", contestants=("us", "gloo"), baseline="gloo", claims=(_CLAIM,)
)


def _record(name: str, value: float | None, *, void: bool = False, **more: str) -> LaunchRecord:
    return LaunchRecord(
        contestant=name,
        round=1,
        values={} if value is None else {"step": value},
        disturbance=Disturbance(foreign_share=0.5 if void else 0.0, steal_share=0.0),
        wall_s=1.0,
        failure=more.get("failure"),
        missing=more.get("missing"),
    )


def _group(row: RowPlan = _ROW) -> Group:
    return Group(
        key="g",
        contestants=tuple(
            Contestant(name=name, role=Role.PEER, starter=Starter.DIRECT, worker="x", num_ranks=2)
            for name in row.contestants
        ),
        rows=(row,),
    )


def test_void_launches_do_not_count_beside_good_ones() -> None:
    records = [_record("us", 1.0), _record("us", 9.0, void=True)]
    assert usable(records, contestant="us", series="step") == ((1.0,), False)


def test_void_launches_are_shown_when_there_are_no_others() -> None:
    records = [_record("us", 9.0, void=True)]
    assert usable(records, contestant="us", series="step") == ((9.0,), True)


def test_memory_is_not_voided_by_others_use_of_the_cpu() -> None:
    record = replace(_record("us", 9.0, void=True), timed=False)
    assert usable([record], contestant="us", series="step") == ((9.0,), False)


@pytest.mark.parametrize(
    ("gloo", "verdict", "certain"),
    [
        ([4.5, 4.6, 4.55], Verdict.STRETCH, True),
        ([3.5, 3.6, 3.55], Verdict.REACHED, True),
        ([2.0, 2.1, 2.05], Verdict.MISSED, True),
        ([2.0, 4.0, 4.0], Verdict.REACHED, False),
    ],
)
def test_a_speed_ratio_is_the_others_time_over_ours(
    gloo: list[float], verdict: Verdict, certain: bool
) -> None:
    launches = {"us": [1.0, 1.0, 1.0], "gloo": gloo}
    found = judge_claim(_CLAIM, _ROW, launches, {"us": False, "gloo": False})
    assert (found.verdict, found.certain) == (verdict, certain)


@pytest.mark.parametrize(
    ("quantity", "to_reach", "ours", "measured", "verdict"),
    [
        (Quantity.TIME_S, 1.0, 0.5, 0.5, Verdict.REACHED),
        (Quantity.TIME_S, 1.0, 1.5, 1.5, Verdict.MISSED),
        (Quantity.TIME_RATIO, 1.02, 2.02, 1.01, Verdict.REACHED),
        (Quantity.TIME_RATIO, 1.02, 2.06, 1.03, Verdict.MISSED),
        (Quantity.EXCESS, 0.5, 22.0, 2.0, Verdict.MISSED),
        (Quantity.EXCESS, 0.5, 4.0, 0.2, Verdict.REACHED),
    ],
)
def test_at_most_claims(
    quantity: Quantity, to_reach: float, ours: float, measured: float, verdict: Verdict
) -> None:
    claim = replace(_CLAIM, quantity=quantity, to_reach=to_reach, stretch=None)
    row = replace(_ROW, unit_bytes=10)
    launches = {"us": [ours, ours], "gloo": [2.0, 2.0]}
    found = judge_claim(claim, row, launches, {"us": False, "gloo": False})
    assert found.verdict is verdict
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(measured)


def test_a_ratio_that_was_measured_within_launches_is_taken_as_it_is() -> None:
    claim = replace(_CLAIM, quantity=Quantity.TIME_RATIO, against=None, to_reach=1.01, stretch=None)
    launches = {"us": [1.002, 1.004, 1.003]}
    found = judge_claim(claim, replace(_ROW, unit="ratio"), launches, {"us": False})
    assert (found.verdict, found.certain) == (Verdict.REACHED, True)
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(1.003)


def test_nothing_is_reached_on_void_launches() -> None:
    launches = {"us": [1.0, 1.0], "gloo": [9.0, 9.0]}
    found = judge_claim(_CLAIM, _ROW, launches, {"us": False, "gloo": True})
    assert found.verdict is Verdict.VOID


def test_a_row_keeps_who_was_missing_and_why() -> None:
    records = [
        _record("gloo", 3.0),
        _record("gloo", 3.0),
        _record("us", None, failure="exit code 1: boom"),
    ]
    (row,) = judge(_group(), records)
    us, gloo = row.entries
    assert (us.estimate, us.note) == (None, "failed: exit code 1: boom")
    assert gloo.launches == (3.0, 3.0)
    assert gloo.against_baseline is None
    assert row.judgements[0].verdict is Verdict.NOT_MEASURED


def test_a_row_compares_with_its_baseline() -> None:
    records = [_record("us", 1.0), _record("us", 1.0), _record("gloo", 3.5), _record("gloo", 3.5)]
    (row,) = judge(_group(), records)
    against = row.entries[0].against_baseline
    assert against is not None
    assert against.value == pytest.approx(3.5)
    assert row.judgements[0].verdict is Verdict.REACHED


_RANKING = Claim(
    text="same ranking",
    quantity=Quantity.RANKING,
    subject="us",
    against="gloo",
    to_reach=1.0,
)
_RANKED = replace(_ROW, ranked=("a", "b", "c"), claims=(_RANKING,))


def _ranked(name: str, *values: float, void: bool = False) -> LaunchRecord:
    throughputs = dict(zip("abc", values, strict=True))
    return replace(_record(name, 1.0, void=void), values={"step": 1.0, **throughputs})


@pytest.mark.parametrize(
    ("ours", "correlation", "verdict"),
    [((1.0, 2.0, 9.0), 1.0, Verdict.REACHED), ((2.0, 1.0, 9.0), 0.5, Verdict.MISSED)],
)
def test_a_ranking_is_the_same_or_not(
    ours: tuple[float, ...], correlation: float, verdict: Verdict
) -> None:
    records = [_ranked("us", *ours), _ranked("gloo", 10.0, 11.0, 12.0)]
    (row,) = judge(_group(_RANKED), records)
    (found,) = row.judgements
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(correlation)
    assert (found.verdict, found.certain) == (verdict, False)  # one launch each
    assert found.note is not None
    assert "gloo: c (12/s) > b (11/s) > a (10/s)" in found.note


def test_a_ranking_is_certain_when_every_pair_of_launches_has_it() -> None:
    same = [_ranked("us", 1.0, 2.0, 3.0), _ranked("gloo", 1.0, 2.0, 3.0)]
    assert judge_ranking(_RANKING, _RANKED, [*same, *same]).certain
    other = _ranked("us", 3.0, 2.0, 1.0)
    found = judge_ranking(_RANKING, _RANKED, [*same, *same, other])
    assert (found.verdict, found.certain) == (Verdict.REACHED, False)


def test_a_ranking_of_disturbed_launches_is_void_and_one_of_none_not_measured() -> None:
    us = _ranked("us", 1.0, 2.0, 3.0, void=True)
    gloo = _ranked("gloo", 1.0, 2.0, 3.0)
    assert judge_ranking(_RANKING, _RANKED, [us, gloo]).verdict is Verdict.VOID
    assert judge_ranking(_RANKING, _RANKED, [us]).verdict is Verdict.NOT_MEASURED


def test_a_difference_of_times_may_be_negative() -> None:
    claim = replace(_CLAIM, quantity=Quantity.TIME_MORE_S, to_reach=1.0, stretch=None)
    quiet = {"us": False, "gloo": False}
    found = judge_claim(claim, _ROW, {"us": [4.0, 4.2], "gloo": [4.5, 4.7]}, quiet)
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(-0.5)
    assert found.verdict is Verdict.REACHED
    slower = judge_claim(claim, _ROW, {"us": [6.0, 6.2], "gloo": [4.5, 4.7]}, quiet)
    assert slower.verdict is Verdict.MISSED


def test_memory_counts_though_the_same_launch_s_time_does_not() -> None:
    claim = Claim(text="500 MB", quantity=Quantity.BYTES, subject="us", to_reach=500e6)
    row = RowPlan(
        key="m", title="t", series="step", contestants=("us",), unit="bytes", claims=(claim,)
    )
    (found,) = judge(_group(row), [_record("us", 400e6, void=True)])
    assert found.judgements[0].verdict is Verdict.REACHED
    assert (found.entries[0].void, found.entries[0].num_void_launches) == (False, 0)

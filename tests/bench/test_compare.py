"""Rows from launches: what counts, what is compared, what is called reached."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from farandole.bench.compare import (
    MISSED,
    NOT_MEASURED,
    REACHED,
    STRETCH,
    VOID,
    compare,
    compare_ranking,
    compare_target,
    launch_to_json,
    ranks,
    spearman,
    speed,
    to_json,
    to_text,
    usable,
)
from farandole.bench.plan import Group, Implementation, Quantity, Row, Target
from farandole.bench.run import LaunchRecord
from farandole.world.foreign import Disturbance

_TARGET = Target("3 x gloo's speed", "speed ratio", "us", "gloo", 3.0, 4.0)
_ROW = Row("r", "all-reduce", "step", ("us", "gloo"), (_TARGET,), baseline="gloo")
_NOBODY = {"us": False, "gloo": False}


def _record(name: str, value: float | None, *, void: bool = False, **more: str) -> LaunchRecord:
    return LaunchRecord(
        name=name,
        round=1,
        values={} if value is None else {"step": value},
        disturbance=Disturbance(foreign_share=0.5 if void else 0.0, steal_share=0.0),
        wall_s=1.0,
        failure=more.get("failure"),
        missing=more.get("missing"),
    )


def _group(row: Row = _ROW) -> Group:
    return Group("g", tuple(Implementation(name=name, num_ranks=2) for name in row.names), (row,))


def test_void_launches_do_not_count_beside_good_ones() -> None:
    records = [_record("us", 1.0), _record("us", 9.0, void=True)]
    assert usable(records, "us", "step") == ((1.0,), False)


def test_void_launches_are_shown_when_there_are_no_others() -> None:
    records = [_record("us", 9.0, void=True)]
    assert usable(records, "us", "step") == ((9.0,), True)


def test_memory_is_not_voided_by_others_use_of_the_cpu() -> None:
    record = replace(_record("us", 9.0, void=True), timed=False)
    assert usable([record], "us", "step") == ((9.0,), False)


@pytest.mark.parametrize(
    ("gloo", "verdict", "certain"),
    [
        ([4.5, 4.6, 4.55], STRETCH, True),
        ([3.5, 3.6, 3.55], REACHED, True),
        ([2.0, 2.1, 2.05], MISSED, True),
        ([2.0, 4.0, 4.0], REACHED, False),
    ],
)
def test_a_speed_ratio_is_the_others_time_over_ours(
    gloo: list[float], verdict: str, certain: bool
) -> None:
    launches = {"us": [1.0, 1.0, 1.0], "gloo": gloo}
    found = compare_target(_TARGET, _ROW, launches, _NOBODY)
    assert (found.verdict, found.certain) == (verdict, certain)


@pytest.mark.parametrize(
    ("quantity", "to_reach", "ours", "measured", "verdict"),
    [
        ("time", 1.0, 0.5, 0.5, REACHED),
        ("time", 1.0, 1.5, 1.5, MISSED),
        ("time ratio", 1.02, 2.02, 1.01, REACHED),
        ("time ratio", 1.02, 2.06, 1.03, MISSED),
        ("excess", 0.5, 22.0, 2.0, MISSED),
        ("excess", 0.5, 4.0, 0.2, REACHED),
    ],
)
def test_at_most_targets(
    quantity: Quantity, to_reach: float, ours: float, measured: float, verdict: str
) -> None:
    against = None if quantity == "time" else "gloo"
    target = Target("x", quantity, "us", against, to_reach)
    row = replace(_ROW, gradient_bytes=10)
    launches = {"us": [ours, ours], "gloo": [2.0, 2.0]}
    found = compare_target(target, row, launches, _NOBODY)
    assert found.verdict == verdict
    assert found.measured is not None
    assert found.measured.value == pytest.approx(measured)


def test_a_ratio_that_was_measured_within_launches_is_taken_as_it_is() -> None:
    target = replace(_TARGET, quantity="time ratio", against=None, to_reach=1.01, stretch=None)
    launches = {"us": [1.002, 1.004, 1.003]}
    found = compare_target(target, replace(_ROW, unit="ratio"), launches, {"us": False})
    assert (found.verdict, found.certain) == (REACHED, True)
    assert found.measured is not None
    assert found.measured.value == pytest.approx(1.003)


def test_nothing_is_reached_on_void_launches() -> None:
    launches = {"us": [1.0, 1.0], "gloo": [9.0, 9.0]}
    found = compare_target(_TARGET, _ROW, launches, {"us": False, "gloo": True})
    assert found.verdict == VOID


def test_a_row_keeps_who_was_missing_and_why() -> None:
    records = [
        _record("gloo", 3.0),
        _record("gloo", 3.0),
        _record("us", None, failure="exit code 1: boom"),
    ]
    (row,) = compare(_group(), records)
    us, gloo = row.entries
    assert (us.median, us.note) == (None, "failed: exit code 1: boom")
    assert gloo.launches == (3.0, 3.0)
    assert gloo.against_baseline is None
    assert row.verdicts[0].verdict == NOT_MEASURED


def test_a_row_compares_with_its_baseline() -> None:
    records = [_record("us", 1.0), _record("us", 1.0), _record("gloo", 3.5), _record("gloo", 3.5)]
    (row,) = compare(_group(), records)
    against = row.entries[0].against_baseline
    assert against is not None
    assert against.value == pytest.approx(3.5)
    assert row.verdicts[0].verdict == REACHED


_RANKING = Target("same ranking", "rank correlation", "us", "gloo", 1.0)
_RANKED = replace(_ROW, ranked=("a", "b", "c"), targets=(_RANKING,))


def _ranked(name: str, *values: float, void: bool = False) -> LaunchRecord:
    throughputs = dict(zip("abc", values, strict=True))
    return replace(_record(name, 1.0, void=void), values={"step": 1.0, **throughputs})


@pytest.mark.parametrize(
    ("ours", "correlation", "verdict"),
    [((1.0, 2.0, 9.0), 1.0, REACHED), ((2.0, 1.0, 9.0), 0.5, MISSED)],
)
def test_a_ranking_is_the_same_or_not(
    ours: tuple[float, ...], correlation: float, verdict: str
) -> None:
    records = [_ranked("us", *ours), _ranked("gloo", 10.0, 11.0, 12.0)]
    (row,) = compare(_group(_RANKED), records)
    (found,) = row.verdicts
    assert found.measured is not None
    assert found.measured.value == pytest.approx(correlation)
    assert (found.verdict, found.certain) == (verdict, False)  # one launch each
    assert found.note is not None
    assert "gloo: c (12/s) > b (11/s) > a (10/s)" in found.note


def test_a_ranking_is_certain_when_every_pair_of_launches_has_it() -> None:
    same = [_ranked("us", 1.0, 2.0, 3.0), _ranked("gloo", 1.0, 2.0, 3.0)]
    assert compare_ranking(_RANKING, _RANKED, [*same, *same]).certain
    other = _ranked("us", 3.0, 2.0, 1.0)
    found = compare_ranking(_RANKING, _RANKED, [*same, *same, other])
    assert (found.verdict, found.certain) == (REACHED, False)


def test_a_ranking_of_disturbed_launches_is_void_and_one_of_none_not_measured() -> None:
    us = _ranked("us", 1.0, 2.0, 3.0, void=True)
    gloo = _ranked("gloo", 1.0, 2.0, 3.0)
    assert compare_ranking(_RANKING, _RANKED, [us, gloo]).verdict == VOID
    assert compare_ranking(_RANKING, _RANKED, [us]).verdict == NOT_MEASURED


def test_a_difference_of_times_may_be_negative() -> None:
    target = replace(_TARGET, quantity="time difference", to_reach=1.0, stretch=None)
    found = compare_target(target, _ROW, {"us": [4.0, 4.2], "gloo": [4.5, 4.7]}, _NOBODY)
    assert found.measured is not None
    assert found.measured.value == pytest.approx(-0.5)
    assert found.verdict == REACHED
    slower = compare_target(target, _ROW, {"us": [6.0, 6.2], "gloo": [4.5, 4.7]}, _NOBODY)
    assert slower.verdict == MISSED


def test_memory_counts_though_the_same_launch_s_time_does_not() -> None:
    target = Target("500 MB", "bytes", "us", None, 500e6)
    row = Row("m", "t", "step", ("us",), (target,), unit="bytes")
    (found,) = compare(_group(row), [_record("us", 400e6, void=True)])
    assert found.verdicts[0].verdict == REACHED
    assert (found.entries[0].void, found.entries[0].void_launches) == (False, 0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 25.0, 400.0], 1.0),
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], -1.0),
        # 1 - 6 sum(d^2) / (n (n^2 - 1)), with two neighbours of four swapped: 1 - 12 / 60
        ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], 0.8),
        ([1.0, 1.0], [1.0, 2.0], 0.0),
        ([1.0, 1.0], [2.0, 2.0], 1.0),
    ],
)
def test_spearman(first: list[float], second: list[float], expected: float) -> None:
    assert spearman(first, second) == pytest.approx(expected)


def test_equal_values_share_their_places() -> None:
    assert ranks([5.0, 1.0, 5.0]) == [2.5, 1.0, 2.5]


@pytest.mark.parametrize(("ratio", "text"), [(0.8123, "81.2 %"), (1.5, "150.0 %"), (4.2, "4.20x")])
def test_ratios(ratio: float, text: str) -> None:
    assert speed(ratio) == text


def test_a_row_of_times_as_text() -> None:
    records = [_record("us", 0.01), _record("us", 0.01), _record("gloo", 0.045)]
    (result,) = compare(_group(), [*records, _record("gloo", 9.0, void=True)])
    assert to_text(result) == [
        "all-reduce (2 ranks)",
        "  implementation  median (95 % interval)  launches      speed, of gloo",
        "  us                             10.0 ms  2                      4.50x",
        "  gloo                           45.0 ms  1 and 1 void",
        "  to reach: 3 x gloo's speed (stretch 4.00x): 4.50x: stretch reached, not certain",
    ]


def test_void_and_absent_implementations_say_so() -> None:
    records = [_record("us", None, failure="boom"), _record("gloo", 1.0, void=True)]
    lines = to_text(compare(_group(), records)[0])
    assert lines[2].split() == ["us", "0"]
    assert lines[3].split() == ["gloo", "1.00", "s", "1,", "all", "void"]
    assert lines[4:] == [
        "  us: failed: boom",
        "  to reach: 3 x gloo's speed (stretch 4.00x): not measured",
    ]


def test_a_row_of_memory_counts_copies_and_one_of_commands_has_no_ranks() -> None:
    target = Target("half a copy", "excess", "us", "gloo", 0.5)
    row = replace(_ROW, targets=(target,), unit="bytes", gradient_bytes=10**7, of_ranks=False)
    (result,) = compare(_group(row), [_record("us", 3e8), _record("gloo", 2.9e8)])
    lines = to_text(result)
    assert lines[0] == "all-reduce"
    assert "300 MB" in lines[2]
    assert lines[2].endswith("+1.00 copies of gradients")
    assert lines[-1] == "  to reach: half a copy: 1.00 copies: not reached, not certain"


@pytest.mark.parametrize(
    ("quantity", "ours", "text"),
    [
        ("time difference", 2.25, "250 ms"),
        ("time difference", 1.75, "-250 ms"),
        ("bytes", 324.4e6, "324 MB"),
        ("time ratio", 2.01, "1.0050"),
    ],
)
def test_a_figure_has_its_own_unit(quantity: Quantity, ours: float, text: str) -> None:
    target = Target("x", quantity, "us", None if quantity == "bytes" else "gloo", 1.0)
    records = [_record("us", ours), _record("us", ours), _record("gloo", 2.0), _record("gloo", 2.0)]
    (result,) = compare(_group(replace(_ROW, targets=(target,))), records)
    assert f"to reach: x: {text} (" in to_text(result)[-1]


def test_json_has_every_figure_and_every_launch() -> None:
    records = [_record("us", 0.5), _record("us", 0.6, void=True), _record("gloo", 2.0)]
    (result,) = compare(_group(), records)
    found = json.loads(json.dumps(to_json(result), allow_nan=False))
    assert found.keys() == {
        *("key", "title", "unit", "baseline", "gradient_bytes", "entries", "targets")
    }
    assert found["entries"][0] == {
        "contestant": "us",
        "ranks": 2,
        "median": {"value": 0.5, "low": None, "high": None},
        "launches": [0.5],
        "void": False,
        "void_launches": 1,
        "against_baseline": {"value": pytest.approx(4.0), "low": None, "high": None},
        "note": None,
    }
    assert found["targets"][0] == {
        "text": "3 x gloo's speed",
        "quantity": "speed ratio",
        "subject": "us",
        "against": "gloo",
        "to_reach": 3.0,
        "stretch": 4.0,
        "measured": {"value": pytest.approx(4.0), "low": None, "high": None},
        "verdict": "stretch reached",
        "certain": False,
        "note": None,
    }
    launches = [launch_to_json("g", record) for record in records]
    assert [launch["counts"] for launch in launches] == [True, False, True]
    assert launches[1] == {
        "group": "g",
        "contestant": "us",
        "round": 1,
        "values": {"step": 0.6},
        "counts": False,
        "foreign_share": 0.5,
        "steal_share": 0.0,
        "wall_s": 1.0,
        "facts": {},
        "failure": None,
        "missing": None,
    }

"""Rows from launches: what counts, what is compared, what is called reached."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from farandole.bench.compare import (
    MISSED,
    NOT_MEASURED,
    REACHED,
    STRETCH,
    VOID,
    compare,
    compare_target,
    launch_to_json,
    spearman,
    speed,
    to_text,
)
from farandole.bench.plan import Group, Implementation, Quantity, Row, Target
from farandole.bench.run import LaunchRecord
from farandole.world.machine import Disturbance

_TARGET = Target("3 x gloo's speed", "speed ratio", "us", "gloo", 3.0, 4.0)
_ROW = Row("r", "all-reduce", "step", ("us", "gloo"), (_TARGET,), baseline="gloo")
_BUSY = Disturbance(foreign_share=0.5, steal_share=0.0)


def _record(name: str, value: float | None, *, void: bool = False, **more: str) -> LaunchRecord:
    values = {} if value is None else {"step": value}
    record = LaunchRecord(name=name, round=1, values=values, wall_s=1.0, **more)
    return replace(record, disturbance=_BUSY) if void else record


def _group(row: Row = _ROW) -> Group:
    return Group("g", tuple(Implementation(name=name, num_ranks=2) for name in row.names), (row,))


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
    records = [_record("us", 1.0)] * 3 + [_record("gloo", value) for value in gloo]
    # Void launches do not count beside good ones.
    (row,) = compare(_group(), [*records, _record("us", 9.0, void=True)])
    (target,) = row["targets"]
    assert (target["verdict"], target["certain"]) == (verdict, certain)
    (row,) = compare(_group(), [replace(one, disturbance=_BUSY) for one in records])
    assert row["targets"][0]["verdict"] == VOID


@pytest.mark.parametrize(
    ("quantity", "to_reach", "ours", "text", "verdict"),
    [
        ("time", 1.0, 0.5, "500 ms", REACHED),
        ("time", 1.0, 1.5, "1.50 s", MISSED),
        ("time ratio", 1.02, 2.02, "1.0100", REACHED),
        ("time ratio", 1.02, 2.06, "1.0300", MISSED),
        ("time difference", 1.0, 1.75, "-250 ms", REACHED),
        ("time difference", 1.0, 3.25, "1.25 s", MISSED),
        ("bytes", 500e6, 324.4e6, "324 MB", REACHED),
        ("excess", 0.5, 22.0, "2.00 copies", MISSED),
        ("excess", 0.5, 4.0, "0.20 copies", REACHED),
    ],
)
def test_at_most_targets(
    quantity: Quantity, to_reach: float, ours: float, text: str, verdict: str
) -> None:
    against = None if quantity in ("time", "bytes") else "gloo"
    row = replace(_ROW, targets=(Target("x", quantity, "us", against, to_reach),))
    if quantity == "excess":
        row = replace(row, gradient_bytes=10)
    (found,) = compare(_group(row), [_record("us", ours), _record("gloo", 2.0)] * 2)
    assert found["targets"][0]["verdict"] == verdict
    assert f"to reach: x: {text} (" in to_text(found)[-1]


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
    us, gloo = _ranked("us", *ours), _ranked("gloo", 10.0, 11.0, 12.0)
    (row,) = compare(_group(_RANKED), [us, gloo])
    (found,) = row["targets"]
    assert found["measured"].value == pytest.approx(correlation)
    assert (found["verdict"], found["certain"]) == (verdict, False)  # one launch each
    assert "gloo: c (12/s) > b (11/s) > a (10/s)" in found["note"]
    # It is certain when every pair of launches says the same.
    assert compare_target(_RANKING, _RANKED, [us, gloo, us, gloo])["certain"]
    void = replace(us, disturbance=_BUSY)
    assert compare_target(_RANKING, _RANKED, [void, gloo])["verdict"] == VOID
    assert compare_target(_RANKING, _RANKED, [us])["verdict"] == NOT_MEASURED


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


def test_rows_as_text() -> None:
    assert [speed(value) for value in (0.8123, 1.5, 4.2)] == ["81.2 %", "150.0 %", "4.20x"]
    records = [_record("us", 0.01), _record("us", 0.01), _record("gloo", 0.045)]
    (result,) = compare(_group(), [*records, _record("gloo", 9.0, void=True)])
    assert to_text(result) == [
        "all-reduce (2 ranks)",
        "  implementation  median (95 % interval)  launches      speed, of gloo",
        "  us                             10.0 ms  2                      4.50x",
        "  gloo                           45.0 ms  1 and 1 void",
        "  to reach: 3 x gloo's speed (stretch 4.00x): 4.50x: stretch reached, not certain",
    ]
    records = [_record("us", None, failure="boom"), _record("gloo", 1.0, void=True)]
    lines = to_text(compare(_group(), records)[0])
    assert lines[2].split() == ["us", "0"]
    assert lines[3].split() == ["gloo", "1.00", "s", "1,", "all", "void"]
    assert lines[4:] == [
        "  us: failed: boom",
        "  to reach: 3 x gloo's speed (stretch 4.00x): not measured",
    ]


def test_memory_counts_copies_though_the_same_launch_s_time_is_void() -> None:
    target = Target("half a copy", "excess", "us", "gloo", 0.5)
    row = replace(_ROW, targets=(target,), unit="bytes", gradient_bytes=10**7)
    (result,) = compare(_group(row), [_record("us", 3e8, void=True), _record("gloo", 2.9e8)])
    assert (result["entries"][0]["void"], result["entries"][0]["void_launches"]) == (False, 0)
    lines = to_text(result)
    assert "300 MB" in lines[2]
    assert lines[2].endswith("+1.00 copies of gradients")
    assert lines[-1] == "  to reach: half a copy: 1.00 copies: not reached, not certain"


def test_json_has_every_figure_and_every_launch() -> None:
    records = [_record("us", 0.5), _record("us", 0.6, void=True), _record("gloo", 2.0)]
    (result,) = compare(_group(), records)
    found = json.loads(json.dumps(result, allow_nan=False, default=asdict))
    heads = {"key", "title", "unit", "baseline", "gradient_bytes"}
    assert found.keys() == heads | {"entries", "targets"}
    ratio = {"value": pytest.approx(4.0), "low": None, "high": None}
    (us, _), (target,) = found["entries"], found["targets"]
    assert us == {
        "contestant": "us",
        "ranks": 2,
        "median": {"value": 0.5, "low": None, "high": None},
        "launches": [0.5],
        "void": False,
        "void_launches": 1,
        "against_baseline": ratio,
        "note": None,
    }
    more = {"verdict": "stretch reached", "certain": False, "note": None, "measured": ratio}
    assert target == asdict(_TARGET) | more
    keys = {"group", "contestant", "round", "values", "counts", "foreign_share", "steal_share"}
    keys |= {"wall_s", "facts", "failure", "missing"}
    launches = [launch_to_json("g", record) for record in records]
    assert [launch["counts"] for launch in launches] == [True, False, True]
    assert launches[1].keys() == keys

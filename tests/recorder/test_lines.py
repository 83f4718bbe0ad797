from __future__ import annotations

import json
import math

import pytest

from farandole.recorder.steps import COLUMNS, line, steps_line, union_s


def test_a_line_is_strict_json() -> None:
    text = line("metric", name='a "b"\nc', value=math.nan, deep=[1.0, math.inf, {"x": math.nan}])
    assert "\n" not in text
    assert json.loads(text, parse_constant=pytest.fail) == {
        "kind": "metric",
        "name": 'a "b"\nc',
        "value": "nan",
        "deep": [1.0, None, {"x": None}],
    }
    assert json.loads(line("metric", value=-math.inf))["value"] == "-inf"


def test_steps_are_columns() -> None:
    rows = [
        [10.5, None, 0.25, 0.0, 0.0, None, None, 2, 32],
        [11.0, 0.1, 0.2, 1, 2, 3, 4, None, math.nan],
    ]
    columns = json.loads(steps_line(rows))["columns"]
    assert tuple(columns) == COLUMNS
    assert columns["end_s"] == [10.5, 11.0]
    assert columns["data_s"] == [None, 0.1]
    assert columns["passes"] == [2, None]
    assert columns["samples"] == [32, None]


@pytest.mark.parametrize(
    ("intervals", "covered_s"),
    [
        ([], 0.0),
        ([(1.0, 3.0)], 2.0),
        ([(1.0, 3.0), (2.0, 4.0)], 3.0),
        ([(5.0, 6.0), (1.0, 3.0)], 3.0),
        ([(1.0, 9.0), (2.0, 3.0), (4.0, 5.0)], 8.0),
    ],
)
def test_what_intervals_cover(intervals: list[tuple[float, float]], covered_s: float) -> None:
    assert union_s(intervals) == covered_s

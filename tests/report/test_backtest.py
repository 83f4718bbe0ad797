"""What a backtest says, for programs and for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.model.projection.backtest import FileScore, ScoredRow, score
from farandole.model.projection.intervals import Prediction
from farandole.report.backtest import lines, to_json


def scored(*, two: bool = False) -> FileScore:
    guesses = [
        ScoredRow(
            group=group,
            key=key,
            measured=1.0,
            projected=Prediction(value=value, low=0.8, high=1.3, ratio=2.0),
            baselines={"linear": 0.5},
            label="8 workers on 2 nodes, batch 4",
        )
        for group, key, value in (("bert", "8", 1.1), ("bert", "16", 0.9), ("gpt", "8", 1.0))
    ]
    found = score("steps", guesses, rows_fit=12, notes=["gpt2 was left out."])
    return replace(found, two_smallest=scored()) if two else found


def figures(mean: float, median: float, bias: float, n: int) -> object:
    return pytest.approx({"mean_abs_pct": mean, "median_abs_pct": median, "bias_pct": bias, "n": n})


def test_the_object_has_the_documented_form() -> None:
    assert to_json([("t.csv", scored())]) == {
        "files": [
            {
                "file": "t.csv",
                "kind": "steps",
                "rows_fit": 12,
                "rows_scored": 3,
                "error": {"8": figures(5, 5, 5, 2), "16": figures(10, 10, -10, 1)},
                "coverage_90": 1.0,
                "baselines": {
                    "linear": {"8": figures(50, 50, -50, 2), "16": figures(50, 50, -50, 1)}
                },
            }
        ]
    }


def test_rows_are_listed_on_demand() -> None:
    (told,) = to_json([("t.csv", scored())], rows=True)["files"]
    assert len(told["rows"]) == 3
    assert told["rows"][0] == {
        "group": "bert",
        "row": "8 workers on 2 nodes, batch 4",
        "key": "8",
        "measured": 1.0,
        "projected": 1.1,
        "low": 0.8,
        "high": 1.3,
        "ratio": 2.0,
    }


def test_the_two_smallest_batches_are_told_apart() -> None:
    (told,) = to_json([("t.csv", scored(two=True))])["files"]
    assert told["two_smallest"]["rows_fit"] == 12
    told = lines("t.csv", scored(two=True))
    titles = [line for line in told if line.startswith("t.csv")]
    assert [title.split(":")[0] for title in titles] == [
        "t.csv",
        "t.csv, the two smallest batches only",
    ]


def test_people_read_a_table_and_sentences() -> None:
    told = lines("t.csv", scored())
    assert told[0] == "t.csv: steps, 12 rows fitted, 3 scored"
    assert told[1].split() == ["workers", "mean", "|error|", "median", "bias", "rows", "linear"]
    assert told[2].split() == ["8", "5.0", "%", "5.0", "%", "+5.0", "%", "2", "50.0", "%"]
    text = "\n".join(told)
    assert "90 % intervals hold 100 % of the scored rows." in text
    # The root of 1.3 / 0.8.
    assert "bert: 2 rows, 100 % inside, intervals 27 % to either side." in text
    assert "gpt2 was left out." in text

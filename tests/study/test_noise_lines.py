"""Lines on gradient noise: whole, of several optimizers, damaged, of a worker that was killed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from farandole.study.rank_file import parse_rank
from farandole.study.records import Rank
from tests.study.folders import BEGIN


def line(update: int, **changes: Any) -> dict[str, Any]:
    """A line of one optimizer with two buckets."""
    given = {
        "kind": "noise",
        "optimizer": 0,
        "update": update,
        "step": update - 1,
        "bytes": [800, 400],
        "before": [1.0 * update, 2.0],
        "after": [0.25, 0.5 * update],
    }
    return given | changes


def parsed(*lines: dict[str, Any]) -> Rank:
    steps = {"kind": "steps", "columns": {"end_s": [1.0] * 25, "samples": [*range(24), None]}}
    encoded = [json.dumps(each).encode() + b"\n" for each in (BEGIN, steps, *lines)]
    rank = parse_rank(encoded, name="rank-0.jsonl")
    assert rank is not None
    return rank


def test_a_file_without_such_lines_has_none() -> None:
    assert parsed().noise == ()


def test_lines_become_columns_with_the_samples_of_their_steps() -> None:
    (found,) = parsed(line(10), line(20), line(25), line(40)).noise
    assert (found.optimizer, found.bucket_bytes) == (0, (800, 400))
    assert (found.update.tolist(), found.step.tolist()) == ([10, 20, 25, 40], [9, 19, 24, 39])
    # Step 24 does not know its samples; step 39 was never written.
    np.testing.assert_array_equal(found.samples, [9.0, 19.0, np.nan, np.nan])
    assert found.before.tolist() == [[10.0, 2.0], [20.0, 2.0], [25.0, 2.0], [40.0, 2.0]]
    assert found.after[:2].tolist() == [[0.25, 5.0], [0.25, 10.0]]


def test_optimizers_and_layouts_are_told_apart() -> None:
    other = line(10, optimizer=1)
    anew = line(30, bytes=[800, 404])
    found = parsed(line(10), other, line(20), anew).noise
    assert [(one.optimizer, one.bucket_bytes, one.update.tolist()) for one in found] == [
        (0, (800, 400), [10, 20]),
        (1, (800, 400), [10]),
        (0, (800, 404), [30]),
    ]


def test_a_script_that_began_anew_counts_from_one_again() -> None:
    (found,) = parsed(line(10), line(20), line(10, before=[7.0, 7.0])).noise
    assert found.update.tolist() == [10, 20]
    assert found.before[0].tolist() == [7.0, 7.0]


def test_a_damaged_line_is_left_out_and_counted() -> None:
    damaged = [line(10, before=[1.0]), line(10, after=["a", "b"]), line(10) | {"update": None}]
    rank = parsed(*damaged, line(20))
    (found,) = rank.noise
    assert found.update.tolist() == [20]
    assert rank.notes == ("3 lines were damaged and left out.",)

"""What a worker recorded, from lines that are whole, torn, damaged or not known yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.study.rank_file import parse_rank, read_rank
from farandole.study.records import GradientTimes, Metric, Opened, Rank
from tests.study.folders import BEGIN


def parse(*lines: dict[str, Any] | bytes) -> Rank | None:
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return parse_rank([line + b"\n" for line in encoded], name="rank-0.jsonl")


def parsed(*lines: dict[str, Any] | bytes) -> Rank:
    rank = parse(BEGIN, *lines)
    assert rank is not None
    return rank


def test_blocks_follow_each_other_and_null_is_not_a_number() -> None:
    steps = parsed(
        {"kind": "steps", "columns": {"end_s": [1.0, 2.5], "data_s": [None, 0.25]}},
        {"kind": "steps", "columns": {"end_s": [4.5], "samples": [64]}},
    ).steps
    assert steps.end_s.dtype == np.float64
    np.testing.assert_array_equal(steps.end_s, [1.0, 2.5, 4.5])
    np.testing.assert_array_equal(steps.data_s, [np.nan, 0.25, np.nan])
    np.testing.assert_array_equal(steps.samples, [np.nan, np.nan, 64])
    np.testing.assert_array_equal(steps.duration_s, [np.nan, 1.5, 2.0])


def test_a_rank_that_did_nothing_has_empty_columns() -> None:
    rank = parsed()
    assert (len(rank.steps), len(rank.utilisation.cpu)) == (0, 0)
    assert (rank.end_s, rank.weights, rank.parameters) == (None, None, None)
    assert (rank.rank, rank.host, rank.begin_s) == (0, "n1", 5.0)
    assert rank.size == BEGIN["size"]


def test_everything_that_a_rank_says_is_read() -> None:
    rank = parsed(
        {"kind": "setup", "framework": "ddp", "device": "cpu", "parameters": 10},
        {"kind": "setup", "batch_seen": 32, "dataset_size": 1797, "sample_hashes": ["a", "b"]},
        {"kind": "setup", "gradient_bytes_per_step": 40, "batch_seen": 64, "bucket_bytes": 8},
        {
            "kind": "use",
            "columns": {"time_s": [1], "cpu": [0.5], "memory_bytes": [10], "gpu": [None]},
        },
        {"kind": "epoch", "begin_s": 1.0, "end_s": 2.0},
        {"kind": "note", "text": "Data wait is not measured."},
        {"kind": "opened", "path": "/a/best.pt", "modified_unix_s": 12.5},
        {"kind": "opened", "path": "/a/best.pt", "write": True},
        {"kind": "buckets", "step": 6, "bytes": [40, 8], "ready_s": [6.5, 7]},
        {
            "kind": "end",
            "end_s": 9.0,
            "bytes_sent": {"gradients": 400},
            "peak_memory_bytes": 5,
            "peak_gpu_bytes": None,
            "weights": "c0ffee",
            "stopped": True,
        },
    )
    assert (rank.framework, rank.parameters, rank.gradient_bytes_per_step) == ("ddp", 10, 40)
    assert rank.batch_seen == 64  # a later one wins
    assert rank.bucket_bytes == 8
    assert (rank.dataset_size, rank.sample_hashes) == (1797, ("a", "b"))
    assert rank.utilisation.cpu.tolist() == [0.5]
    assert np.isnan(rank.utilisation.gpu_energy_j).all()
    assert rank.epochs == ((1.0, 2.0),)
    assert rank.notes == ("Data wait is not measured.",)
    assert rank.opened == (
        Opened(path="/a/best.pt", modified_unix_s=12.5),
        Opened(path="/a/best.pt", write=True),
    )
    assert rank.buckets == (GradientTimes(step=6, bytes=(40, 8), ready_s=(6.5, 7.0)),)
    assert (rank.end_s, rank.bytes_sent, rank.weights) == (9.0, {"gradients": 400}, "c0ffee")
    assert (rank.peak_memory_bytes, rank.peak_gpu_bytes, rank.stopped) == (5, None, True)


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_metric_that_is_not_finite_comes_as_a_word(word: str) -> None:
    (metric,) = parsed({"kind": "metric", "name": "loss", "value": word, "step": 3}).metrics
    assert (metric.name, metric.step, metric.rank) == ("loss", 3, 0)
    np.testing.assert_equal(metric.value, float(word))


def test_metrics_carry_their_rank() -> None:
    line = {"kind": "metric", "name": "acc", "value": 0.5, "epoch": 1.5, "time_s": 2.0}
    assert parsed(line).metrics == (Metric(name="acc", value=0.5, epoch=1.5, time_s=2.0, rank=0),)


def test_a_torn_last_line_is_what_a_killed_worker_leaves() -> None:
    rank = parsed({"kind": "epoch", "begin_s": 1.0, "end_s": 2.0}, b'{"kind": "epoch", "beg')
    assert rank.epochs == ((1.0, 2.0),)
    assert rank.notes == ()


def test_damage_within_is_counted_and_costs_only_its_own_lines() -> None:
    rank = parsed(
        b'{"kind": "epo',
        b"\xff\xfe",
        {"kind": "steps", "columns": {"end_s": [1.0], "data_s": [1.0, 2.0]}},
        {"kind": "epoch", "begin_s": 1.0, "end_s": 2.0},
    )
    assert rank.epochs == ((1.0, 2.0),)
    assert len(rank.steps) == 0
    assert rank.notes == ("3 lines were damaged and left out.",)


def test_kinds_and_fields_of_the_future_are_passed_over() -> None:
    rank = parsed({"kind": "dance"}, {"kind": "steps", "columns": {"end_s": [1.0], "new": [2]}})
    assert rank.steps.end_s.tolist() == [1.0]
    assert rank.notes == ()


def test_a_script_that_executes_itself_anew_began_when_it_first_did() -> None:
    assert parsed(BEGIN | {"begin_s": 99.0}).begin_s == 5.0


@pytest.mark.parametrize("lines", [[], [b""], [{"kind": "epoch", "begin_s": 1, "end_s": 2}]])
def test_a_worker_that_never_began_is_no_rank(lines: list[Any]) -> None:
    assert parse(*lines) is None


def test_a_newer_schema_is_refused() -> None:
    with pytest.raises(UsageError, match=r"newer Farandole: its schema is 2, this one reads 1"):
        parse(BEGIN | {"schema": 2})


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rank-0\.jsonl cannot be read \(No such file"):
        read_rank(tmp_path / "rank-0.jsonl")

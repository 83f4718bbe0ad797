"""Reading folders and what workers recorded: whole, torn, damaged, newer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.study.folder import mark_complete, write_link
from farandole.study.read import parse_rank, read_head, read_launch, read_study
from farandole.study.records import Cell, GradientTimes, Link, Metric, Opened, Rank, Study
from tests.study.folders import BEGIN, add_launch, make_launch, make_study


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


def parsed_noise(*lines: dict[str, Any]) -> Rank:
    steps = {"kind": "steps", "columns": {"end_s": [1.0] * 25, "samples": [*range(24), None]}}
    encoded = [json.dumps(each).encode() + b"\n" for each in (BEGIN, steps, *lines)]
    rank = parse_rank(encoded, name="rank-0.jsonl")
    assert rank is not None
    return rank


def test_lines_become_columns_with_the_samples_of_their_steps() -> None:
    (found,) = parsed_noise(line(10), line(20), line(25), line(40)).noise
    assert (found.optimizer, found.bucket_bytes) == (0, (800, 400))
    assert (found.update.tolist(), found.step.tolist()) == ([10, 20, 25, 40], [9, 19, 24, 39])
    # Step 24 does not know its samples; step 39 was never written.
    np.testing.assert_array_equal(found.samples, [9.0, 19.0, np.nan, np.nan])
    assert found.before.tolist() == [[10.0, 2.0], [20.0, 2.0], [25.0, 2.0], [40.0, 2.0]]
    assert found.after[:2].tolist() == [[0.25, 5.0], [0.25, 10.0]]


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


@pytest.mark.parametrize("lines", [[], [b""], [{"kind": "epoch", "begin_s": 1, "end_s": 2}]])
def test_a_worker_that_never_began_is_no_rank(lines: list[Any]) -> None:
    assert parse(*lines) is None


def test_a_rank_file_of_a_newer_schema_is_refused() -> None:
    with pytest.raises(UsageError, match=r"newer Farandole: its schema is 2, this one reads 1"):
        parse(BEGIN | {"schema": 2})


def test_without_a_label_a_study_is_called_as_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_study(tmp_path / "laptop", label="")
    assert read_study(tmp_path / "laptop").label == "laptop"
    monkeypatch.chdir(tmp_path / "laptop")
    assert read_study(".").label == "laptop"
    assert read_head(Path()).label == ""


def test_what_was_written_is_read(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    cell = Cell(workers=2, threads=1, batch=64, params=(("lr", "0.1"), ("a b", '"<x>"')))
    launch = make_launch(
        cell,
        last_output=("caf\u00e9 \udcff",),
        argv=("python", "a b.py"),
        figures={"throughput": 12.5, "epoch_s": float("inf")},
        metrics=(Metric(name="acc", value=0.5, epoch=1.0),),
        foreign_share=0.01,
        busy=True,
        seed=3,
        started="2026-01-01T00:00:00+00:00",
    )
    add_launch(tmp_path / "s", launch, [BEGIN, {"kind": "steps", "columns": {"end_s": [1, 2]}}])
    link = Link(latency_s=1e-5, allreduce=((2, 4096, 0.001),))
    write_link(tmp_path / "s", link)
    mark_complete(study)

    found = Study.load(str(tmp_path / "s"))
    assert (found.label, found.command, found.spec) == (study.label, study.command, study.spec)
    assert (found.machine, found.created, found.complete) == (study.machine, study.created, True)
    assert found.link == link
    (read,) = found.launches
    (rank,) = read.ranks
    assert rank.steps.end_s.tolist() == [1.0, 2.0]
    bare = read_launch(tmp_path / "s" / "launches" / read.id, ranks=False)
    assert bare == launch
    assert found.cells == (cell,)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_a_damaged_study_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UsageError, match=r"study\.json is damaged"):
        read_study(tmp_path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"outcome": "fine"}, "'fine' is none of ok"),
        ({"cell": {}}, "'workers' is missing"),
        ({"cell": None}, "damaged"),
        ({"figures": {"job_s": "soon"}}, "damaged"),
        ({"schema": "1"}, "its schema is '1'"),
    ],
)
def test_a_damaged_launch_says_how_to_go_on(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    make_study(tmp_path)
    file = add_launch(tmp_path, make_launch()) / "launch.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UsageError, match=why) as caught:
        read_study(tmp_path)
    assert "Remove it, and --resume makes that launch again." in str(caught.value)


@pytest.mark.parametrize("name", ["study.json", "link.json", "launches/0001-w2-b64-r0/launch.json"])
def test_a_newer_schema_is_refused(tmp_path: Path, name: str) -> None:
    make_study(tmp_path)
    add_launch(tmp_path, make_launch())
    write_link(tmp_path, Link())
    file = tmp_path / name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 2}))
    with pytest.raises(UsageError, match="newer Farandole: its schema is 2"):
        read_study(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": 1, "allreduce": 3}', '{"a": ' + "[" * 100_000 + "]" * 100_000]
)
def test_a_damaged_link_is_left_out(tmp_path: Path, text: str) -> None:
    make_study(tmp_path)
    add_launch(tmp_path, make_launch())
    (tmp_path / "link.json").write_text(text)
    study = read_study(tmp_path)
    assert study.link == Link()
    (note,) = study.notes
    assert "link.json is damaged (" in note
    assert note.endswith("The study is read without it.")

"""The merged timeline: from lines to trace events, without a worker."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.recorder import timeline


def begin(host: str = "h1", begin_s: float = 100.0, unix_s: float = 1000.0) -> dict[str, Any]:
    return {"kind": "begin", "rank": 0, "host": host, "begin_s": begin_s, "begin_unix_s": unix_s}


def steps(**columns: list[float | None]) -> dict[str, Any]:
    names = (
        *("end_s", "data_s", "optimizer_s", "communication_s", "exposed_s"),
        *("ready_s", "done_s", "samples"),
    )
    count = len(columns["end_s"])
    return {"kind": "steps", "columns": {n: columns.get(n, [None] * count) for n in names}}


def slices(trace: dict[str, Any], track: str, pid: int = 1) -> list[tuple[str, float, float]]:
    """Name, begin and end in seconds of a track's slices."""
    return [
        (event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in trace["traceEvents"]
        if event["ph"] == "X" and event["cat"] == track and event["pid"] == pid
    ]


def near(
    found: Iterable[tuple[str, float, float]], expected: list[tuple[str, float, float]]
) -> None:
    found = list(found)
    assert [name for name, *_ in found] == [name for name, *_ in expected]
    for (_, *times), (_, *right) in zip(found, expected, strict=True):
        assert times == pytest.approx(right, abs=1e-5)


# Two steps of 1 s: 0.1 s of data, 0.5 of computing, 0.3 of communication of which 0.2 exposed.
BLOCK = steps(
    end_s=[101.0, 102.0],
    data_s=[0.1, 0.1],
    optimizer_s=[0.2, 0.2],
    communication_s=[0.3, 0.3],
    exposed_s=[0.2, 0.2],
    ready_s=[100.6, 101.6],
    done_s=[100.8, 101.8],
)


def test_steps_become_tracks() -> None:
    trace = timeline.trace({0: [begin(), BLOCK]})
    second = {track: slices(trace, track)[-1:] for track in timeline.TRACKS}
    near(second["step"], [("step 1", 1.0, 2.0)])
    near(second["data"], [("wait for data", 1.0, 1.1)])
    near(second["compute"], [("step 1", 1.1, 1.6)])
    near(second["communication"], [("gradients", 1.5, 1.8)])
    near(second["exposed wait"], [("wait for gradients", 1.6, 1.8)])
    near(second["optimizer"], [("update", 1.8, 2.0)])


def test_what_was_not_measured_is_not_drawn() -> None:
    trace = timeline.trace({0: [begin(), steps(end_s=[101.0, 102.0])]})
    assert slices(trace, "communication") == slices(trace, "data") == []
    near(slices(trace, "compute"), [("step 1", 1.0, 2.0)])


def test_events_count_more_than_sums() -> None:
    seen = {"kind": "event", "track": "data", "name": "batch", "begin_s": 101.2, "end_s": 101.3}
    trace = timeline.trace({0: [begin(), BLOCK, seen]})
    near(slices(trace, "data"), [("batch", 1.2, 1.3)])
    assert slices(trace, "optimizer")


def test_slices_of_a_track_never_overlap() -> None:
    lines = [
        {"kind": "event", "track": "communication", "name": str(n), "begin_s": b, "end_s": e}
        for n, (b, e) in enumerate([(100.0, 103.0), (101.0, 102.0), (102.0, 104.0), (99.0, 100.5)])
    ]
    reached = -1.0
    for _, start, stop in slices(timeline.trace({0: [begin(), *lines]}), "communication"):
        assert reached <= start < stop
        reached = stop
    assert reached == pytest.approx(4.0)


def test_hosts_meet_on_the_clock_of_the_day() -> None:
    # Both clocks were read at the same moment: 200 s of monotonic time there is 100 s here.
    other = steps(end_s=[201.0, 202.0])
    late = begin("h1", begin_s=100.5, unix_s=9999.0)  # of a host whose offset is known already
    trace = timeline.trace(
        {0: [begin(), BLOCK], 1: [begin("h2", 200.0, 1000.0), other], 2: [late, BLOCK]}
    )
    near(slices(trace, "step")[-1:], [("step 1", 1.0, 2.0)])
    near(slices(trace, "step", pid=2)[-1:], [("step 1", 1.0, 2.0)])
    near(slices(trace, "step", pid=3)[-1:], [("step 1", 1.0, 2.0)])


def test_counters_and_names() -> None:
    use = {"time_s": [0.5, 1.0], "cpu": [0.9, None], "memory_bytes": [2e6, 3e6]}
    lines = [
        begin(),
        {"kind": "use", "columns": use},
        {"kind": "metric", "name": "loss", "value": 0.25, "time_s": 2.0},
        {"kind": "metric", "name": "loss", "value": "nan", "time_s": 3.0},
        {"kind": "epoch", "begin_s": 100.0, "end_s": 101.0},
    ]
    trace = timeline.trace({3: lines})
    counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
    assert [(e["name"], e["ts"], e["args"]["value"]) for e in counters] == [
        ("CPU (cores)", 5e5, 0.9),
        ("memory (MB)", 5e5, 2.0),
        ("memory (MB)", 1e6, 3.0),
        ("loss", 2e6, 0.25),
    ]
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"].endswith("_name")}
    assert names == {"rank 3 (h1)", "epochs"}
    # Perfetto takes 0 for the kernel's idle task.
    assert all(event["pid"] > 0 for event in trace["traceEvents"])


def test_files_are_merged_and_torn_lines_ignored(tmp_path: Path) -> None:
    torn = json.dumps(BLOCK)[:-9]
    for rank in (0, 1, 10):
        (tmp_path / f"rank-{rank}.jsonl").write_text(f"{json.dumps(begin())}\n{torn}")
    event = {"kind": "event", "track": "data", "name": "x", "begin_s": 100.0, "end_s": 101.0}
    (tmp_path / "rank-10.events.jsonl").write_text(json.dumps(event) + "\n")
    (tmp_path / "rank-x.jsonl").write_text("not ours\n")
    target = tmp_path / "trace.json"
    assert timeline.write(tmp_path, target) == 3
    trace = json.loads(target.read_text())
    near(slices(trace, "data", pid=11), [("x", 0.0, 1.0)])
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".jsonl"} == {"trace.json"}


def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"timeline cannot be written to .*nowhere"):
        timeline.write(tmp_path, tmp_path / "nowhere" / "trace.json")

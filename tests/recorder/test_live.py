"""A timeline that is there while the run goes on."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from farandole.recorder import timeline as timelines
from farandole.recorder.timeline import LiveTimeline, Session
from tests.conftest import eventually

SESSION = Session(job="j", number=1)


class Clock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def drawn(path: Path, phase: str = "X") -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text()) if event["ph"] == phase]


def test_ranks_of_one_host_share_a_clock(tmp_path: Path) -> None:
    path, clock = tmp_path / "t.json", Clock(50.0)
    first = LiveTimeline(path, SESSION, rank=0, host="h", clock=clock)
    clock.now_s = 53.0
    second = LiveTimeline(path, SESSION, rank=1, host="h", clock=clock)
    for timeline in (first, second):
        timeline.slice("allreduce.x", "ALLREDUCE", 53.5, 53.75)
        timeline.flush()
    one, other = drawn(path)
    assert (one["ts"], one["dur"]) == (other["ts"], other["dur"]) == (3.5e6, 0.25e6)
    assert one["pid"] != other["pid"]
    names = {(e["name"], e["args"].get("name")) for e in drawn(path, "M") if e["pid"]}
    assert ("process_name", "rank 0 (h)") in names
    assert ("process_name", "rank 1 (h)") in names
    assert ("thread_name", "allreduce.x") in names


def test_hosts_agree_by_the_time_of_the_day(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    here = LiveTimeline(path, SESSION, rank=0, host="h1", clock=Clock(50.0))
    there = LiveTimeline(path, SESSION, rank=1, host="h2", clock=Clock(9000.0))
    here.slice("a", "A", 50.0, 51.0)
    there.slice("a", "A", 9000.0, 9001.0)
    here.flush()
    there.flush()
    one, other = drawn(path)
    # Both said it right after each other.
    assert other["ts"] - one["ts"] == pytest.approx(0.0, abs=20e6)


def test_it_is_written_at_once_then_once_in_a_while_and_at_the_end(tmp_path: Path) -> None:
    path, clock = tmp_path / "t.json", Clock(0.0)
    timeline = LiveTimeline(path, SESSION, rank=0, host="h", clock=clock)
    timeline.mark("cycles", "CYCLE_START", 0.0)
    timeline.slice("a", "first", 0.0, 0.5)
    assert drawn(path) == []
    timeline.keep_up(0.5)
    assert [event["name"] for event in drawn(path)] == ["first"]
    assert [event["name"] for event in drawn(path, "i")] == ["CYCLE_START"]
    timeline.slice("a", "second", 0.6, 0.9)
    timeline.keep_up(0.9)
    assert len(drawn(path)) == 1
    timeline.slice("a", "third", 0.9, 1.5)
    timeline.keep_up(1.5)
    assert [event["name"] for event in drawn(path)] == ["first", "second", "third"]
    timeline.slice("a", "last", 1.5, 1.6)
    timeline.flush()
    assert len(drawn(path)) == 4


def test_the_last_operation_is_seen_though_no_other_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "_EVERY_S", 0.05)
    path = tmp_path / "t.json"
    timeline = LiveTimeline(path, SESSION, rank=0, host="h")
    for name in ("first", "second", "third"):
        now_s = time.monotonic()
        timeline.slice("a", name, now_s, now_s)
        timeline.keep_up(now_s)
    eventually(lambda: [event["name"] for event in drawn(path)] == ["first", "second", "third"])
    timeline.flush()
    assert "farandole-timeline" not in [thread.name for thread in threading.enumerate()]


def test_the_disk_may_fill_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    timeline = LiveTimeline(folder / "t.json", SESSION, rank=0, host="h", clock=Clock(0.0))
    (folder / "t.json").unlink()
    folder.rmdir()
    for number in range(3):
        timeline.slice("a", "A", number, number + 5.0)
        timeline.keep_up(number + 5.0)
    assert capsys.readouterr().err.count("the timeline ends here") == 1

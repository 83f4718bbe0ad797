from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farandole.recorder import recorder as recording
from farandole.recorder.recorder import (
    BYTE_KINDS,
    Recorder,
    Settings,
    current,
    forget,
    paused,
    when_opened,
)
from farandole.study import records
from tests.recorder.launching import Recorded, read_rank


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


Open = Callable[..., Recorder]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Open]:
    made = []

    def opening(**options: Any) -> Recorder:
        settings = Settings(folder=str(tmp_path), timeline=options.pop("timeline", False))
        options = {"rank": 0, "size": 2, "host": "here", **options}
        made.append(Recorder(settings, clock=clock, **options))
        return made[-1]

    yield opening
    for recorder in made:
        recorder.close()


def read(tmp_path: Path) -> Recorded:
    return read_rank(tmp_path / "rank-0.jsonl")


def test_it_begins_and_ends(tmp_path: Path, opened: Open) -> None:
    recorder = opened()
    (begin,) = read(tmp_path).lines
    assert begin["kind"] == "begin"
    assert (begin["schema"], begin["rank"], begin["size"]) == (records.SCHEMA, 0, 2)
    assert (begin["host"], begin["pid"]) == ("here", os.getpid())
    recorder.close()
    recorder.close()
    end = read(tmp_path).end
    assert end["end_s"] == 1000.0
    assert end["bytes_sent"] == dict.fromkeys(records.BYTE_KINDS, 0)
    assert end["peak_memory_bytes"] > 1e6
    assert end["stopped"] is False


def test_names_are_those_of_the_records() -> None:
    # The recorder does not import them: they need NumPy.
    assert records.BYTE_KINDS == BYTE_KINDS
    assert set(recording.steps_line.__globals__["COLUMNS"]) == set(records.Steps.__annotations__)


def test_steps_are_written_in_blocks(tmp_path: Path, opened: Open, clock: Clock) -> None:
    recorder = opened()
    for _ in range(10):
        clock.now_s += 0.02
        recorder.step()
    assert not read(tmp_path).of("steps")
    clock.now_s += 2.0
    recorder.step()
    assert len(read(tmp_path).steps()["end_s"]) == 11
    recorder.step()
    recorder.close()
    found = read(tmp_path)
    assert len(found.of("steps")) == 2
    assert found.steps()["end_s"][:2] == [1000.02, 1000.04]
    assert len(found.steps()["end_s"]) == 12


def test_steps_that_ran_in_one_piece_share_its_time(
    tmp_path: Path, opened: Open, clock: Clock
) -> None:
    recorder = opened()
    clock.now_s = 1006.0
    recorder.several_steps(1003.0, [8, 8, 5])
    assert recorder.steps == 3
    recorder.close()
    steps = read(tmp_path).steps()
    assert steps["end_s"] == [1004.0, 1005.0, 1006.0]
    assert steps["samples"] == [8.0, 8.0, 5.0]


def test_a_note_on_waiting_for_data_is_not_contradicted(tmp_path: Path, opened: Open) -> None:
    recorder = opened()
    recorder.note(f"{recording.WAITING}: for a reason.")
    recorder.trained_on(3)
    recorder.step()
    recorder.close()
    assert read(tmp_path).notes == [f"{recording.WAITING}: for a reason."]
    assert read(tmp_path).steps()["samples"] == [3.0]


def test_bytes_are_counted_by_kind(tmp_path: Path, opened: Open) -> None:
    recorder = opened()
    recorder.sent("gradients", 100)
    recorder.sent("gradients", 50)
    recorder.sent("objects", 7)
    recorder.close()
    sent = read(tmp_path).end["bytes_sent"]
    assert (sent["gradients"], sent["objects"], sent["other"]) == (150, 7, 0)


def test_one_worker_sends_nothing(tmp_path: Path, opened: Open) -> None:
    recorder = opened(size=1)
    recorder.sent("gradients", 100)
    recorder.close()
    assert read(tmp_path).end["bytes_sent"]["gradients"] == 0


def test_metrics_notes_setup_and_epochs(tmp_path: Path, opened: Open, clock: Clock) -> None:
    recorder = opened()
    recorder.step()
    recorder.metric("loss", float("nan"))
    recorder.metric("loss", 0.5, step=9, epoch=1.5)
    recorder.note("no GPU")
    recorder.note("no GPU")
    recorder.setup(framework="ddp", parameters=7)
    recorder.assume(framework="torch", device="cpu")
    recorder.setup(parameters=7)
    recorder.epoch(1.0, 2.0)
    recorder.tell("opened", path="x")
    recorder.close()
    found = read(tmp_path)
    assert found.metrics("loss") == ["nan", 0.5]
    assert [(m["step"], m["epoch"]) for m in found.of("metric")] == [(1, None), (9, 1.5)]
    assert found.of("metric")[0]["time_s"] == pytest.approx(clock.now_s - recorder.begin_s)
    assert found.notes.count("no GPU") == 1
    assert found.of("setup") == [
        {"kind": "setup", "framework": "ddp", "parameters": 7},
        {"kind": "setup", "device": "cpu"},
    ]
    assert found.of("epoch") == [{"kind": "epoch", "begin_s": 1.0, "end_s": 2.0}]
    assert found.of("opened") == [{"kind": "opened", "path": "x"}]
    assert "no DataLoader was seen" in found.notes[-1]


def test_a_metric_from_a_device_is_asked_for_later(
    tmp_path: Path, opened: Open, clock: Clock
) -> None:
    recorder = opened()
    answers: list[float | None] = [None, 2.5]
    recorder.metric("loss", lambda: answers.pop(0))
    clock.now_s += 2
    recorder.step()
    assert read(tmp_path).metrics("loss") == []
    clock.now_s += 2
    recorder.step()
    assert read(tmp_path).metrics("loss") == [2.5]


@pytest.mark.parametrize("late", [False, True])
def test_samples_may_be_said_before_a_step_ends_or_after(
    tmp_path: Path, opened: Open, clock: Clock, late: bool
) -> None:
    recorder = opened()
    for count in (1, 2, 3, 4):
        if not late:
            recorder.samples(count)
        clock.now_s += 0.6
        recorder.step()
        if late:
            recorder.samples(count)
    recorder.close()
    assert read(tmp_path).steps()["samples"] == [1, 2, 3, 4]


def test_more_lines_at_each_block(tmp_path: Path, opened: Open, clock: Clock) -> None:
    recorder = opened()
    more: list[dict[str, Any] | None] = [{"kind": "use", "columns": {"cpu": [0.5]}}, None]
    recorder.add_source(lambda: more.pop(0) if more else None)
    clock.now_s += 2
    recorder.step()
    recorder.step()
    assert read(tmp_path).of("use") == [{"kind": "use", "columns": {"cpu": [0.5]}}]


def test_an_ending_that_fails_takes_nothing_else_along(tmp_path: Path, opened: Open) -> None:
    recorder = opened()
    recorder.add_ending(lambda: {"weights": "abc"})
    recorder.add_ending(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    recorder.close()
    found = read(tmp_path)
    assert found.end["weights"] == "abc"
    assert any("ZeroDivisionError" in note for note in found.notes)


@pytest.mark.parametrize("timeline", [False, True])
def test_events_are_kept_on_request(tmp_path: Path, opened: Open, timeline: bool) -> None:
    recorder = opened(timeline=timeline)
    recorder.data_waited(1.0, 2.0, 32)
    recorder.gradients(ready_s=2.0, done_s=3.0, began_s=2.0, exposed_s=1.0)
    recorder.optimizer(3.0, 4.0)
    recorder.event("mine", "something", 4.0, 5.0)
    recorder.close()
    path = tmp_path / "rank-0.events.jsonl"
    assert path.exists() is timeline
    if timeline:
        events = [json.loads(line) for line in path.read_text().splitlines()]
        assert [event["track"] for event in events] == [
            *("data", "communication", "optimizer", "mine")
        ]
        assert (events[0]["begin_s"], events[0]["end_s"]) == (1.0, 2.0)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    forget()
    monkeypatch.setenv("FARANDOLE_RECORD_DIR", str(tmp_path))
    yield monkeypatch
    forget()


def test_without_a_folder_nothing_is_recorded(fresh: pytest.MonkeyPatch) -> None:
    fresh.delenv("FARANDOLE_RECORD_DIR")
    assert current() is None


def test_it_is_opened_on_first_use(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh.setenv("RANK", "3")
    fresh.setenv("WORLD_SIZE", "4")
    seen = []
    when_opened(seen.append)
    assert list(tmp_path.iterdir()) == []
    recorder = current()
    assert recorder is not None
    assert current() is recorder
    when_opened(seen.append)
    assert seen == [recorder, recorder]
    assert (recorder.rank, recorder.size) == (3, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["rank-3.jsonl"]


def test_nothing_is_recorded_while_it_is_paused(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh.setenv("FARANDOLE_RECORD_DIR", str(tmp_path))
    recorder = current()
    assert recorder is not None
    with paused():
        assert current() is None
    assert current() is recorder


def test_a_second_process_of_a_rank_is_not_recorded(
    fresh: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank-0.jsonl").write_text("")
    assert current() is None
    assert current() is None
    assert capsys.readouterr().err.count("another process records this rank") == 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FARANDOLE_RECORD_DIR", "/no/such/folder", "nothing is recorded"),
        ("FARANDOLE_STOP", "{", "FARANDOLE_STOP="),
        ("FARANDOLE_RANK", "x", "FARANDOLE_SIZE is not"),
    ],
)
def test_what_cannot_be_recorded_is_said(
    fresh: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    said: str,
) -> None:
    fresh.setenv(name, value)
    assert current() is None
    assert said in capsys.readouterr().err


def test_a_forked_child_does_not_speak_for_its_parent(
    fresh: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder = current()
    assert recorder is not None
    child = os.fork()
    if not child:
        os._exit(0 if current() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    recorder.step()
    forget()
    assert len(read(tmp_path).of("end")) == 1
    assert len(read(tmp_path).steps()["end_s"]) == 1


@pytest.mark.parametrize(
    ("rule", "noted"), [('{"precision": 0.03}', True), ('{"steps": 9}', False)]
)
def test_workers_on_several_hosts_agree_on_a_number_of_steps_only(
    fresh: pytest.MonkeyPatch, tmp_path: Path, rule: str, noted: bool
) -> None:
    places = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    for name, value in {**places, "FARANDOLE_STOP": rule}.items():
        fresh.setenv(name, value)
    assert current() is not None
    forget()
    assert any("several hosts" in note for note in read(tmp_path).notes) is noted
    assert (tmp_path / "control").exists() is not noted

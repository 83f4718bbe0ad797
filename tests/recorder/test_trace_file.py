"""A trace file that is valid at every moment."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from farandole.recorder.timeline import Origin, Session, TraceFile

FIRST = Session(job="j", number=1)


def origin(host: str = "h") -> Origin:
    return Origin(host=host, monotonic_s=5.0, unix_s=1000.25)


def events(path: Path) -> list[int]:
    return [each["n"] for each in json.loads(path.read_text()) if "n" in each]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def test_ranks_add_to_one_file_whose_origin_is_the_first_ones(path: Path) -> None:
    one, other = TraceFile(path, FIRST), TraceFile(path, FIRST)
    assert one.begin(origin("h1")) == origin("h1")
    assert json.loads(path.read_text())[0]["args"]["start_time_since_epoch_in_micros"] == 1000250000
    assert other.begin(origin("h2")) == origin("h1")
    one.add(['{"n": 1}', '{"n": 2}'])
    other.add(['{"n": 3}'])
    one.add(['{"n": 4}'])
    assert events(path) == [1, 2, 3, 4]
    assert os.listdir(path.parent) == ["trace.json"], "nothing is left beside it"  # noqa: PTH208


@pytest.mark.parametrize("text", ["", "[]", "{}", "[\n7\n]\n", '{"name": "a study"}\n'])
def test_what_was_there_is_replaced(path: Path, text: str) -> None:
    path.write_text(text)
    file = TraceFile(path, FIRST)
    file.begin(origin())
    file.add(['{"n": 1}'])
    assert events(path) == [1]


def test_a_file_of_another_job_or_an_earlier_timeline_is_replaced(path: Path) -> None:
    for session in (
        FIRST,
        Session(job="j", number=2),
        Session(job="k", number=1),
    ):
        file = TraceFile(path, session)
        file.begin(origin())
        assert events(path) == []
        file.add(['{"n": 1}'])


def test_who_is_late_does_not_spoil_the_next_timeline(path: Path) -> None:
    late, next_one = TraceFile(path, FIRST), TraceFile(path, Session(job="j", number=2))
    late.begin(origin())
    next_one.begin(origin())
    late.add(['{"n": 1}'])
    next_one.add(['{"n": 2}'])
    assert events(path) == [2]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        TraceFile(tmp_path / "none" / "trace.json", FIRST).begin(origin())


def test_readers_find_it_whole_while_several_write(path: Path) -> None:
    TraceFile(path, FIRST).begin(origin())
    # Long enough that a file in the making would be seen.
    filler = "x" * 20_000

    def write(writer: int) -> None:
        file = TraceFile(path, FIRST)
        for number in range(30):
            file.add([json.dumps({"n": writer * 100 + number, "filler": filler})])

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    seen = []
    while any(thread.is_alive() for thread in threads):
        seen.append(len(events(path)))
    for thread in threads:
        thread.join()
    assert seen == sorted(seen)
    assert sorted(events(path)) == [w * 100 + n for w in range(3) for n in range(30)]

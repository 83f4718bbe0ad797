"""Bytes that outlive a worker: whole ones, the newest, whatever happened in the middle of one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from farandole.errors import StartError
from farandole.world.stored_state import VARIABLE, StateFiles, StoredState, restarts, stored_state


@pytest.fixture
def files() -> Iterator[StateFiles]:
    files = StateFiles()
    yield files
    files.close()


@pytest.fixture
def mine(files: StateFiles) -> Iterator[StoredState]:
    mine = StoredState(files.paths)
    yield mine
    mine.close()


def read(mine: StoredState) -> bytes | None:
    found = mine.read()
    return None if found is None else bytes(found)


def test_the_newest_is_found_by_the_next_process(files: StateFiles, mine: StoredState) -> None:
    assert read(mine) is None
    assert not mine.written
    for number in range(4):
        mine.write([b"state ", memoryview(b"x" * (1000 - 300 * number)), b"", b"%d" % number])
        other = StoredState(files.paths)
        assert read(other) == b"state " + b"x" * (1000 - 300 * number) + b"%d" % number
        assert not other.written
        other.close()
    assert mine.written
    mine.write([])
    assert read(mine) == b""


def test_more_parts_than_one_write_takes(mine: StoredState) -> None:
    mine.write([bytes([number % 256]) * 3 for number in range(2000)])
    assert read(mine) == b"".join(bytes([number % 256]) * 3 for number in range(2000))


def test_a_death_in_the_middle_leaves_what_was_there(
    files: StateFiles, mine: StoredState, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.write([b"old"])
    mine.write([b"whole"])

    def die(*_: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(os, "pwritev", die)
    with pytest.raises(OSError, match="no memory"):
        mine.write([b"torn"])
    assert read(mine) == b"whole"


def test_where_nothing_is_stored(files: StateFiles) -> None:
    assert stored_state({}) is None
    assert (restarts({}), restarts({"FARANDOLE_RESTART": "3"})) == (0, 3)
    mine = stored_state({VARIABLE: files.variable})
    assert mine is not None
    assert stored_state({VARIABLE: files.variable}) is mine
    mine.close()
    with pytest.raises(StartError, match="the launcher has ended"):
        stored_state({VARIABLE: "/proc/0/fd/1:/proc/0/fd/2"})

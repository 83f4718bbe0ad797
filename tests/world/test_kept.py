"""Bytes that outlive a worker: whole ones, the newest, whatever happened in the middle of one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from farandole.errors import StartError
from farandole.world.kept import VARIABLE, Kept, KeptFiles, kept, restarts


@pytest.fixture
def files() -> Iterator[KeptFiles]:
    files = KeptFiles()
    yield files
    files.close()


@pytest.fixture
def mine(files: KeptFiles) -> Iterator[Kept]:
    mine = Kept(files.paths)
    yield mine
    mine.close()


def read(kept: Kept) -> bytes | None:
    found = kept.read()
    return None if found is None else bytes(found)


def test_the_newest_is_found_by_the_next_process(files: KeptFiles, mine: Kept) -> None:
    assert read(mine) is None
    assert not mine.written
    for number in range(4):
        mine.write([b"state ", memoryview(b"x" * (1000 - 300 * number)), b"", b"%d" % number])
        other = Kept(files.paths)
        assert read(other) == b"state " + b"x" * (1000 - 300 * number) + b"%d" % number
        assert not other.written
        other.close()
    assert mine.written
    mine.write([])
    assert read(mine) == b""


def test_more_parts_than_one_write_takes(mine: Kept) -> None:
    mine.write([bytes([number % 256]) * 3 for number in range(2000)])
    assert read(mine) == b"".join(bytes([number % 256]) * 3 for number in range(2000))


def test_a_death_in_the_middle_leaves_what_was_there(
    files: KeptFiles, mine: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.write([b"old"])
    mine.write([b"whole"])

    def die(*_: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(os, "pwritev", die)
    with pytest.raises(OSError, match="no memory"):
        mine.write([b"torn"])
    assert read(mine) == b"whole"


def test_where_nothing_is_kept(files: KeptFiles) -> None:
    assert kept({}) is None
    assert (restarts({}), restarts({"FARANDOLE_RESTART": "3"})) == (0, 3)
    mine = kept({VARIABLE: files.variable})
    assert mine is not None
    assert kept({VARIABLE: files.variable}) is mine
    mine.close()
    with pytest.raises(StartError, match="the launcher has ended"):
        kept({VARIABLE: "/proc/0/fd/1:/proc/0/fd/2"})

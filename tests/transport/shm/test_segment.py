"""Segments: memory without a name, or a clear error."""

from __future__ import annotations

import os

import pytest

from farandole.transport.shm.segment import Segment, SegmentError


def test_what_the_owner_writes_a_peer_reads() -> None:
    mine = Segment.create(4096)
    theirs = Segment.attach(mine.path, 4096)
    mine.words(64, 1)[0] = 42
    assert theirs.words(64, 1)[0] == 42
    mine.close()
    theirs.close()


def test_more_than_is_free_is_refused_before_it_is_taken() -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with pytest.raises(SegmentError, match="MB are free"):
        Segment.create(2 * memory)


def test_a_segment_that_is_gone_cannot_be_attached() -> None:
    with pytest.raises(SegmentError, match="cannot be opened"):
        Segment.attach(f"/proc/{os.getpid()}/fd/99999", 4096)

"""Gloo passes the conformance tests, to the same bits as shared memory."""

from __future__ import annotations

import gc
import os

import pytest

from farandole.testing import FakeWorld, Member
from farandole.transport import gloo
from farandole.transport.protocol import Transport
from tests.conftest import eventually
from tests.transport.conformance import TransportConformance, sized


def open_gloo(member: Member) -> Transport:
    # Several windows for what is large in these tests.
    gloo.WINDOW_BYTES = 200_000
    return gloo.GlooTransport(member.rank, member.size, member.exchange)


def leave_last(member: Member) -> None:
    """Leave a group when its other ranks are known to have left it: nothing of it may stay."""

    def threads() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - no paths are needed

    before = threads()
    transport = gloo.GlooTransport(member.rank, member.size, member.exchange)
    assert threads() > before
    if member.rank:
        transport.close()
    member.exchange(b"")
    if not member.rank:
        wire = transport._wire
        eventually(lambda: not wire.receive() and bool(wire.loss))
        transport.close()
    del transport
    eventually(lambda: threads() <= before)


@pytest.mark.ranks
@sized((2, 3, 4))
class TestGlooTransport(TransportConformance):
    opener = staticmethod(open_gloo)

    def test_who_leaves_last_keeps_nothing(self, world: FakeWorld) -> None:
        world.run(leave_last)

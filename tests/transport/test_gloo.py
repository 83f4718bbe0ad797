"""Gloo passes the conformance tests, to the same bits as shared memory."""

from __future__ import annotations

import pytest

from farandole.testing import Member
from farandole.transport import gloo
from farandole.transport.protocol import Transport
from tests.transport.conformance import TransportConformance, sized


def open_gloo(member: Member) -> Transport:
    # Several windows for what is large in these tests.
    gloo.WINDOW_BYTES = 200_000
    return gloo.GlooTransport(member.rank, member.size, member.exchange)


@pytest.mark.ranks
@sized((2, 3, 4))
class TestGlooTransport(TransportConformance):
    opener = staticmethod(open_gloo)

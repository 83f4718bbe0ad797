"""Shared memory passes the conformance tests."""

from __future__ import annotations

import pytest

from farandole.testing import Member
from farandole.transport.protocol import Transport
from farandole.transport.shm.transport import ShmTransport
from tests.transport.conformance import TransportConformance, sized


def open_shm(member: Member) -> Transport:
    return ShmTransport(member.rank, member.size, member.exchange)


@pytest.mark.ranks
@sized((2, 3, 4))
class TestShmTransport(TransportConformance):
    opener = staticmethod(open_shm)

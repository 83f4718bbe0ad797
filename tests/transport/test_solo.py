"""One worker passes the conformance tests, too."""

from __future__ import annotations

import pytest

from farandole.testing import Member
from farandole.transport.choose import SoloTransport
from farandole.transport.protocol import Transport
from tests.transport.conformance import TransportConformance, sized


def open_solo(member: Member) -> Transport:
    return SoloTransport()


@pytest.mark.ranks
@sized((1,))
class TestSoloTransport(TransportConformance):
    opener = staticmethod(open_solo)

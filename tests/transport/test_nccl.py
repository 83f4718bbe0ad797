"""NCCL passes the conformance tests, where there is a GPU per rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from farandole.testing import Member
from farandole.transport.protocol import Buffer, Steps
from farandole.transport.reduction import HALF_TYPES
from tests.transport.conformance import TransportConformance, sized


def open_nccl(member: Member) -> Any:
    from farandole.transport.gloo import GlooTransport
    from farandole.transport.nccl import NcclTransport

    torch.cuda.set_device(member.rank)
    host = GlooTransport(member.rank, member.size, member.exchange)
    return ThroughGpu(NcclTransport(member.rank, member.size, member.exchange, host.link))


class ThroughGpu:
    """Takes the host arrays of the tests to a GPU and brings the results back."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.name, self.rank, self.size = transport.name, transport.rank, transport.size
        self.eager = self.buckets = None
        self.link, self.check_peers, self.close = (
            transport.link,
            transport.check_peers,
            transport.close,
        )

    def __getattr__(self, kind: str) -> Any:
        def run(*arguments: Any) -> Steps:
            there = {id(a): self._there(a) for a in arguments if isinstance(a, Buffer)}
            yield from getattr(self._transport, kind)(
                *(there.get(id(a), a) if isinstance(a, Buffer) else a for a in arguments)
            )
            for argument in arguments:
                if isinstance(argument, Buffer):
                    back = there[id(argument)].data.cpu()
                    if argument.dtype in HALF_TYPES:
                        back = back.view(torch.int16)
                    argument.data[...] = back.numpy().view(argument.data.dtype)

        return run

    @staticmethod
    def _there(buffer: Buffer) -> Buffer:
        if buffer.dtype in HALF_TYPES:
            host = torch.from_numpy(buffer.data.view(np.int16)).view(getattr(torch, buffer.dtype))
        else:
            host = torch.from_numpy(buffer.data)
        return Buffer(host.cuda(), buffer.dtype)


@pytest.mark.ranks
@pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="NCCL needs a GPU per rank, and here are fewer than 2"
)
@sized((2,))
class TestNcclTransport(TransportConformance):
    opener = staticmethod(open_nccl)

"""The hierarchical transport passes the conformance tests, with sums that fold host by host."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from farandole.testing import FakeWorld, Member
from farandole.transport.hierarchical import slots
from farandole.transport.hierarchical.transport import HierarchicalTransport
from farandole.transport.hosts import Hosts
from farandole.transport.protocol import Buffer, Transport
from farandole.transport.reduction import AVERAGE, STORAGE, Reduction
from tests.transport.conformance import TransportConformance, drive, seed, sized
from tests.transport.reference import FLOATS, reduced, same_bits, values


def open_hierarchical(member: Member) -> Transport:
    # Several windows, and more of them than slots, for what is large in these tests.
    slots.SLOT_BYTES = 128 * 1024
    ranks = tuple(map(tuple, member.state["hosts"]))
    hosts = Hosts(ranks=ranks, names=tuple(f"host{n}" for n in range(len(ranks))))
    return HierarchicalTransport(member.rank, hosts, member.exchange)


@pytest.mark.ranks
@sized((5,))
class TestTwoHosts(TransportConformance):
    """Ranks dealt out in turns, one host with more of them than the other."""

    opener = staticmethod(open_hierarchical)
    hosts: ClassVar[dict[int, list[list[int]]]] = {5: [[0, 2, 4], [1, 3]]}

    def test_results_are_those_of_one_fold_up_to_rounding(self, world: FakeWorld) -> None:
        found = world.run(averages)
        for dtype, sources in inputs(world.size).items():
            answers = [each[dtype] for each in found]
            assert all(same_bits(answer, answers[0]) for answer in answers), dtype
            flat = reduced(sources, dtype, AVERAGE)
            if dtype in FLOATS:
                wide = [as_float(each, dtype) for each in (answers[0], flat)]
                # One rounding of a half on each host, one at the end; sums of five elsewhere.
                scale = max(np.abs(as_float(source, dtype)).max() for source in sources)
                ulps = 5 * scale * EPSILON[dtype]
                assert np.abs(wide[0] - wide[1]).max() <= ulps, dtype
            elif STORAGE[dtype].kind in "iu":
                assert same_bits(answers[0], flat), dtype

    def test_averages_of_large_halves_do_not_overflow(self, world: FakeWorld) -> None:
        assert world.run(large_halves) == [40000.0] * world.size


@pytest.mark.ranks
@sized((4,))
class TestThreeHosts(TransportConformance):
    """More than two hosts, two of which have one rank only."""

    opener = staticmethod(open_hierarchical)
    hosts: ClassVar[dict[int, list[list[int]]]] = {4: [[0, 3], [1], [2]]}


EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def inputs(size: int) -> dict[str, list[Any]]:
    types = [dtype for dtype, storage in STORAGE.items() if storage.kind in "iuf"]
    return {dtype: [values(dtype, 3000, seed(r, 11)) for r in range(size)] for dtype in types}


def as_float(array: Any, dtype: str) -> Any:
    if dtype in ("float16", "bfloat16"):
        import torch

        bits = torch.from_numpy(array.copy())
        return bits.view(getattr(torch, dtype)).double().numpy()
    return array.astype(np.float64)


def averages(member: Member) -> dict[str, Any]:
    found = {}
    for dtype, sources in inputs(member.size).items():
        data = sources[member.rank].copy()
        drive(
            member.state["transport"].allreduce(Buffer(data, dtype), Buffer(data, dtype), AVERAGE)
        )
        found[dtype] = data
    return found


def large_halves(member: Member) -> float:
    """Average what is too large to be summed, even over one host's ranks."""
    data = np.full(100, 40000, np.float16).view(np.uint16)
    buffer = Buffer(data, "float16")
    drive(member.state["transport"].allreduce(buffer, buffer, Reduction(op="average")))
    (value,) = set(data.view(np.float16).tolist())
    return float(value)

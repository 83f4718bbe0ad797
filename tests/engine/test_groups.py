"""Several arrays by one exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.engine import arrays
from farandole.errors import MismatchError, UsageError
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.reduction import SUM, Reduction

pytestmark = pytest.mark.ranks


def given(rank: int) -> list[Any]:
    return [
        np.arange(6, dtype=np.float32).reshape(2, 3) + rank,
        np.array(rank, np.int64),
        np.zeros((0, 4), np.float32),
        np.full(100, rank + 1, np.float16),
        np.arange(8, dtype=np.float32)[::2] * rank,
    ]


def combine(member: Member) -> list[Any]:
    import farandole.torch as hvd

    hvd.init()
    before = given(member.rank)
    found = arrays.grouped_allreduce(before, how=SUM)
    for array, other in zip(before, given(member.rank), strict=True):
        assert np.array_equal(array, other), "only read"
    again = arrays.grouped_allreduce(given(member.rank), "named", SUM)
    assert all(np.array_equal(one, two) for one, two in zip(found, again, strict=True))
    assert arrays.grouped_allreduce([]) == []
    hvd.shutdown()
    return found


@pytest.mark.parametrize(("size", "transport"), [(2, "shm"), (3, "gloo")])
def test_values_shapes_and_types(nursery: Nursery, size: int, transport: str) -> None:
    with FakeWorld(size, transport=transport, nursery=nursery) as world:
        for found in world.run(combine):
            for index, result in enumerate(found):
                parts = [given(rank)[index] for rank in range(size)]
                assert result.shape == parts[0].shape
                assert result.dtype == parts[0].dtype
                assert np.array_equal(result, np.sum(parts, 0))


def differ(member: Member) -> None:
    import farandole.torch as hvd

    hvd.init()
    shapes = [(2, 3), (4,)] if member.rank else [(4,), (2, 3)]
    with pytest.raises(MismatchError, match=r"\(\[4\], \[2, 3\]\) of float32.*rank 1"):
        arrays.grouped_allreduce([np.ones(shape, np.float32) for shape in shapes])
    many = [(2 if member.rank == index else 1,) for index in range(20)]
    many = [*many, (2 - member.rank,)]
    with pytest.raises(MismatchError, match="21 tensors, digest of their shapes"):
        arrays.grouped_allreduce([np.ones(shape, np.float32) for shape in many])
    with pytest.raises(UsageError, match="cannot be averaged"):
        arrays.grouped_allreduce([np.ones(1, np.bool_)])
    arrays.grouped_allreduce([np.ones(1, np.float32)], how=Reduction(op="max"))
    hvd.shutdown()


def test_groups_that_differ_are_an_error_everywhere(nursery: Nursery) -> None:
    with FakeWorld(2, nursery=nursery) as world:
        world.run(differ)


def test_memory_starts_on_a_cache_line() -> None:
    assert arrays.aligned(0, np.dtype(np.float32)).shape == (0,)
    for count in (1, 100_000):
        found = arrays.aligned(count, np.dtype(np.float32))
        assert found.shape == (count,)
        assert found.ctypes.data % 64 == 0

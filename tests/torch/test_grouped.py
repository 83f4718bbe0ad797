"""Grouped operations: values, and all of them or none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import farandole.torch as hvd
from farandole.errors import MismatchError
from tests.torch.checks import Check, Checks, Ranks, on, raises

TYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
checks = Checks()


def of_rank(rank: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, whose sums are exact in every type."""
    return ((torch.arange(length) * 3 + rank) % 4 + 1).to(dtype)


def several(rank: int) -> list[torch.Tensor]:
    """Of every type; some are fused, some go through slots alone, one is empty."""
    lengths = (1, 700, 40_000, 0)
    return [of_rank(rank, length, dtype) for dtype in TYPES for length in lengths]


def sums(dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    everyone = [several(rank) for rank in range(hvd.size())]
    return [
        torch.stack([each.double() for each in same]).sum(0).to(same[0].dtype)
        for same in zip(*everyone, strict=True)
    ]


def equal(actual: Any, expected: list[torch.Tensor]) -> None:
    assert isinstance(actual, list)
    assert [each.dtype for each in actual] == [each.dtype for each in expected]
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other), (one, other)


@checks
def check_allreduce() -> None:
    for name in (None, "group"):
        mine = several(hvd.rank())
        for _ in range(2):
            equal(hvd.grouped_allreduce(mine, op=hvd.Sum, name=name), sums())
        equal(mine, several(hvd.rank()))
        handle = hvd.grouped_allreduce_async(mine, op=hvd.Sum, name=name)
        equal(hvd.synchronize(handle), sums())
        handle = hvd.grouped_allreduce_async_(mine, op=hvd.Sum, name=name)
        equal(hvd.synchronize(handle), sums())
        equal(mine, sums())
        mine = several(hvd.rank())
        equal(hvd.grouped_allreduce_(mine, None, name, hvd.Sum), sums())
        equal(mine, sums())


@checks
def check_averages_factors_and_compression() -> None:
    mine = [torch.full((3,), float(hvd.rank())), torch.full((2,), 2.0 * hvd.rank())]
    mean = sum(range(hvd.size())) / hvd.size()
    equal(hvd.grouped_allreduce(mine), [torch.full((3,), mean), torch.full((2,), 2 * mean)])
    equal(hvd.grouped_allreduce(mine, True), [torch.full((3,), mean), torch.full((2,), 2 * mean)])
    scaled = hvd.grouped_allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=4.0)
    equal(scaled, [each * 8 * hvd.size() for each in hvd.grouped_allreduce(mine)])
    third = [torch.full((3,), 1 / 3)]
    for compression, dtype in (
        (hvd.Compression.fp16, torch.float16),
        (hvd.Compression.bf16, torch.bfloat16),
    ):
        found = hvd.grouped_allreduce(third, op=hvd.Max, compression=compression)
        equal(found, [third[0].to(dtype).float()])


@checks
def check_allgather() -> None:
    for name in (None, "group"):
        for _ in range(2):
            mine = [of_rank(hvd.rank(), hvd.rank() + 1 + i, t) for i, t in enumerate(TYPES)]
            expected = [
                torch.cat([of_rank(rank, rank + 1 + i, t) for rank in range(hvd.size())])
                for i, t in enumerate(TYPES)
            ]
            equal(hvd.grouped_allgather(mine, name), expected)
            equal(hvd.synchronize(hvd.grouped_allgather_async(mine, name)), expected)


@checks
def check_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = 2 * size + 1
    mine = [of_rank(rank, rows, t) for t in TYPES]
    expected = []
    for t in TYPES:
        total = sum(of_rank(r, rows, torch.float64) for r in range(size)).to(t)
        first = 2 * rank + min(rank, 1)
        expected.append(total[first : first + 2 + (rank == 0)])
    equal(hvd.grouped_reducescatter(mine, op=hvd.Sum), expected)
    handle = hvd.grouped_reducescatter_async(mine, "group", hvd.Sum)
    equal(hvd.synchronize(handle), expected)
    third = torch.full((size,), 1 / 3)
    found = hvd.grouped_reducescatter([third], op=hvd.Max, compression=hvd.Compression.fp16)
    equal(found, [third[:1].half().float()])


@checks
def check_groups_of_none() -> None:
    assert hvd.grouped_allreduce([]) == []
    assert hvd.grouped_allreduce_([]) == []
    for begin in (
        hvd.grouped_allreduce_async,
        hvd.grouped_allreduce_async_,
        hvd.grouped_allgather_async,
        hvd.grouped_reducescatter_async,
    ):
        assert hvd.synchronize(begin([])) == []


@checks
def check_all_or_none() -> None:
    """One tensor that differs, and none of them is exchanged, on any rank."""
    first = hvd.rank() == 0
    for _ in range(2):
        mine = [torch.ones(4), torch.ones(3 if first else 5), torch.ones(2)]
        with raises(MismatchError, "'grouped_allreduce.g'", "float32[3]", "float32[5]", "rank 0: "):
            hvd.grouped_allreduce_(mine, op=hvd.Sum, name="g")
        assert all(set(each.tolist()) == {1.0} for each in mine)
        same = [torch.ones(4), torch.ones(3)]
        assert hvd.grouped_allreduce(same, op=hvd.Sum, name="g")[1].tolist() == [hvd.size()] * 3
    with raises(MismatchError, "of 2 (", "of 3 ("):
        hvd.grouped_allgather([torch.ones(1)] * (2 if first else 3), name="count")
    with raises(MismatchError, "sum", "max"):
        hvd.grouped_allreduce([torch.ones(1)], name="op", op=hvd.Sum if first else hvd.Max)
    with raises(ValueError, "Tensor is required to be contiguous"):
        hvd.grouped_allreduce([torch.ones(2), torch.ones(2, 3).t()])
    hvd.barrier()


@checks
def check_opposite_orders() -> None:
    handles = {}
    order = range(6) if hvd.rank() % 2 else range(5, -1, -1)
    for i in order:
        handles[i] = hvd.grouped_allreduce_async(
            [torch.full((10,), float(i)), torch.full((i + 1,), 1.0)], op=hvd.Sum, name=f"o{i}"
        )
    for i, handle in handles.items():
        one, two = hvd.synchronize(handle)
        assert set(one.tolist()) == {float(i * hvd.size())}
        assert two.tolist() == [hvd.size()] * (i + 1)


@checks
def check_a_name_in_use() -> None:
    handle = hvd.grouped_allreduce_async([torch.ones(2)] * 2, name="busy")
    if hvd.rank() == 0:
        # The others come later, so that it cannot have ended.
        with raises(ValueError, "submitted again"):
            late = hvd.grouped_allreduce_async([torch.ones(2)] * 2, name="late")
            hvd.grouped_allreduce_async([torch.ones(2)] * 2, name="late")
    hvd.barrier()
    if hvd.rank() != 0:
        late = hvd.grouped_allreduce_async([torch.ones(2)] * 2, name="late")
    hvd.synchronize(late)
    hvd.synchronize(handle)


ranks = on((2, "shm"), (3, "shm"), (4, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)

"""Collective operations of farandole.torch: values, types, names, and what is refused."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import pytest
import torch

import farandole.torch as hvd
from farandole.engine.named import DuplicateNameError
from farandole.errors import MismatchError, NotInitializedError
from tests.torch.checks import Check, Checks, Ranks, on, raises

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# One element; on the eager board's way; more than a cache line; through slots, in several pieces.
LENGTHS = (1, 5, 1000, 200_003)

checks = Checks()


def of_rank(rank: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, whose sums and products are exact in every type."""
    return ((torch.arange(length) * 3 + rank) % 4 + 1).to(dtype)


def of_all(length: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [of_rank(rank, length, dtype) for rank in range(hvd.size())]


def equal(actual: Any, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert torch.equal(actual, expected), (actual, expected)


@checks
def check_before_init() -> None:
    hvd.shutdown()
    for call in (
        lambda: hvd.allreduce(torch.ones(2)),
        lambda: hvd.allreduce_async(torch.ones(2)),
        lambda: hvd.broadcast(torch.ones(2), 0),
        lambda: hvd.allgather(torch.ones(2)),
        lambda: hvd.reducescatter(torch.ones(2)),
        lambda: hvd.alltoall(torch.ones(2)),
        hvd.barrier,
        hvd.rank,
    ):
        with raises(NotInitializedError, "Horovod has not been initialized; use hvd.init()."):
            call()
    hvd.init()


@checks
def check_allreduce_of_every_type_and_length() -> None:
    for dtype in (*FLOATS, *INTEGERS):
        for length in LENGTHS:
            mine = of_rank(hvd.rank(), length, dtype)
            expected = sum(of_all(length, torch.float64)).to(dtype)
            # Twice: the second time the operation has been agreed on before.
            for _ in range(2):
                equal(hvd.allreduce(mine, op=hvd.Sum), expected)
            equal(mine, of_rank(hvd.rank(), length, dtype))


@checks
def check_allreduce_with_every_op() -> None:
    for dtype in (torch.float32, torch.float16, torch.int64):
        everyone = of_all(100, dtype)
        for op, combine in (
            (hvd.Sum, torch.add),
            (hvd.Min, torch.minimum),
            (hvd.Max, torch.maximum),
            (hvd.Product, torch.mul),
        ):
            equal(hvd.allreduce(everyone[hvd.rank()], op=op), reduce(combine, everyone))


@checks
def check_average_divides_once() -> None:
    for dtype in (torch.float32, torch.float64):
        everyone = [torch.rand(77, dtype=dtype, generator=seed(r)) for r in range(hvd.size())]
        mean = reduce(torch.add, everyone) / hvd.size()
        equal(hvd.allreduce(everyone[hvd.rank()]), mean)
        equal(hvd.allreduce(everyone[hvd.rank()], op=hvd.Average), mean)


def seed(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


@checks
def check_integer_averages_go_toward_zero() -> None:
    size = hvd.size()
    values = torch.tensor([7, -7, 1, -1, 0]) + (hvd.rank() == 0)
    totals = [size * value + 1 for value in (7, -7, 1, -1, 0)]
    expected = torch.tensor([math.trunc(total / size) for total in totals])
    equal(hvd.allreduce(values), expected)


@checks
def check_half_types_round_once() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        everyone = [torch.rand(999, generator=seed(r)).to(dtype) for r in range(hvd.size())]
        total = reduce(torch.add, [one.float() for one in everyone])
        equal(hvd.allreduce(everyone[hvd.rank()], op=hvd.Sum), total.to(dtype))
        equal(hvd.allreduce(everyone[hvd.rank()]), (total / hvd.size()).to(dtype))


@checks
def check_sums_fold_in_rank_order() -> None:
    # (1e8 - 1e8) + 1 is 1 and 1e8 + (1 - 1e8) is 0 in float32: order shows.
    values = [1e8, -1e8, 1.0, 0.25]
    mine = torch.full((70_001,), values[hvd.rank()])
    total = reduce(torch.add, [torch.tensor(value) for value in values[: hvd.size()]])
    assert set(hvd.allreduce(mine, op=hvd.Sum).tolist()) == {total.item()}


@checks
def check_bool_and_complex() -> None:
    mine = torch.tensor([True, False, hvd.rank() == 0])
    equal(hvd.allreduce(mine, op=hvd.Max), torch.tensor([True, False, True]))
    equal(hvd.allreduce(mine, op=hvd.Min), torch.tensor([True, False, False]))
    equal(hvd.broadcast(mine, 0), torch.tensor([True, False, True]))
    for dtype in (torch.complex64, torch.complex128):
        ones = torch.full((3,), 1 + 2j, dtype=dtype)
        equal(hvd.allreduce(ones, op=hvd.Sum), ones * hvd.size())
        with raises(ValueError, "Complex numbers have no order"):
            hvd.allreduce(ones, op=hvd.Max)
    with raises(ValueError, "bool tensor cannot be averaged"):
        hvd.allreduce(mine)


@checks
def check_scale_factors() -> None:
    size = hvd.size()
    ones = torch.ones(10)
    equal(
        hvd.allreduce(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
        torch.full((10,), 1.5 * size),
    )
    equal(hvd.allreduce_(ones.clone(), op=hvd.Sum, prescale_factor=2.0), ones * 2 * size)
    # Integers are scaled in float64, then cut.
    threes = torch.full((4,), 3, dtype=torch.int32)
    equal(
        hvd.allreduce(threes, op=hvd.Sum, prescale_factor=0.5),
        torch.full((4,), 1 * size, dtype=torch.int32),
    )
    big = torch.tensor([2**40 + 1])
    equal(hvd.allreduce(big, op=hvd.Sum, prescale_factor=2.0), (2 * big) * size)
    halves = torch.full((4,), 1.5, dtype=torch.float16)
    equal(hvd.allreduce(halves, op=hvd.Sum, postscale_factor=0.5), halves * size / 2)
    rows = torch.ones(size, 2)
    equal(
        hvd.reducescatter(rows, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5),
        torch.full((1, 2), float(size)),
    )


@checks
def check_average_is_an_alias_of_op() -> None:
    ones = torch.ones(3)
    equal(hvd.allreduce(ones, average=False), ones * hvd.size())
    equal(hvd.allreduce(ones, average=True), ones)
    with raises(ValueError, "average=", "op="):
        hvd.allreduce(ones, average=True, op=hvd.Sum)


@checks
def check_horovods_positional_order() -> None:
    ones, size = torch.ones(3), hvd.size()
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)
    equal(hvd.allreduce_(ones.clone(), None, "positional", hvd.Sum), ones * size)
    equal(hvd.allreduce_(ones.clone(), None, "positional", hvd.Sum, 2.0, 3.0), ones * size * 6)
    handle = hvd.allreduce_async(ones, None, "positional", hvd.Sum)
    equal(hvd.synchronize(handle), ones * size)
    handle = hvd.allreduce_async_(ones.clone(), False, "positional")
    equal(hvd.synchronize(handle), ones * size)
    equal(hvd.allreduce(ones, False, "positional"), ones * size)
    equal(hvd.allgather(ones, "positional"), torch.ones(3 * size))
    equal(hvd.broadcast(ones * hvd.rank(), 1, "positional"), ones)
    equal(hvd.reducescatter(torch.ones(size), "positional", None, hvd.Sum), ones[:1] * size)
    splits = torch.ones(size, dtype=torch.int32)
    equal(hvd.alltoall(torch.ones(size), splits, "positional")[0], torch.ones(size))


@checks
def check_in_place_forms_return_the_tensor_itself() -> None:
    mine = torch.full((4,), float(hvd.rank()))
    assert hvd.broadcast_(mine, 1) is mine
    equal(mine, torch.ones(4))
    assert hvd.allreduce_(mine, op=hvd.Sum) is mine
    equal(mine, torch.full((4,), float(hvd.size())))
    for submit in (
        lambda: hvd.allreduce_async_(mine),
        lambda: hvd.broadcast_async_(mine, 0),
    ):
        assert hvd.synchronize(submit()) is mine
    parameter = torch.nn.Parameter(torch.full((3,), float(hvd.rank())))
    assert hvd.allreduce_(parameter, op=hvd.Sum) is parameter
    assert parameter.tolist() == [sum(range(hvd.size()))] * 3


@checks
def check_results_of_asynchronous_operations_have_no_history() -> None:
    mine = torch.ones(hvd.size(), requires_grad=True)
    for handle in (
        hvd.allreduce_async(mine),
        hvd.broadcast_async(mine, 0),
        hvd.allgather_async(mine),
        hvd.reducescatter_async(mine),
    ):
        assert not hvd.synchronize(handle).requires_grad


@checks
def check_a_slice_does_not_touch_its_neighbours() -> None:
    whole = torch.zeros(4, 5)
    whole[1:3] = 1
    hvd.allreduce_(whole[1:3], op=hvd.Sum)
    equal(whole.sum(1), torch.tensor([0.0, 5.0, 5.0, 0.0]) * hvd.size())


@checks
def check_empty_and_scalar_tensors() -> None:
    equal(hvd.allreduce(torch.tensor(2.0), op=hvd.Sum), torch.tensor(2.0 * hvd.size()))
    equal(hvd.broadcast(torch.tensor(hvd.rank()), 1), torch.tensor(1))
    empty = torch.empty(0, 3)
    equal(hvd.allreduce(empty), empty)
    equal(hvd.broadcast(empty, 0), empty)
    equal(hvd.allgather(empty), empty)
    equal(hvd.reducescatter(empty), empty)
    equal(hvd.alltoall(empty), empty)
    # Horovod's programs catch one or the other.
    for kind in (ValueError, RuntimeError, hvd.HorovodInternalError):
        for call in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
            with raises(kind, call.__name__, "at least one dimension"):
                call(torch.tensor(1.0))
        with raises(kind, "reducescatter", "at least one dimension"):
            hvd.grouped_reducescatter([torch.ones(hvd.size(), 1), torch.tensor(1.0)])


@checks
def check_broadcast_of_every_type_from_every_root() -> None:
    for dtype in (*FLOATS, *INTEGERS):
        for root in range(hvd.size()):
            for length in LENGTHS:
                mine = of_rank(hvd.rank(), length, dtype)
                equal(hvd.broadcast(mine, root), of_rank(root, length, dtype))
                equal(mine, of_rank(hvd.rank(), length, dtype))


@checks
def check_an_unknown_root_is_refused() -> None:
    for root in (-1, hvd.size()):
        for call in (hvd.broadcast, hvd.broadcast_, hvd.broadcast_async, hvd.broadcast_async_):
            with raises(ValueError, f"root_rank={root} is not a rank", f"{hvd.size() - 1}"):
                call(torch.ones(2), root)


@checks
def check_allgather_of_different_lengths() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        for unit in (1, 7, 5000):
            rows = [(rank + 1) * unit for rank in range(hvd.size())]
            mine = torch.full((rows[hvd.rank()], 3), hvd.rank() + 1, dtype=dtype)
            expected = torch.cat(
                [torch.full((n, 3), r + 1, dtype=dtype) for r, n in enumerate(rows)]
            )
            equal(hvd.allgather(mine), expected)
    # A rank may have nothing.
    mine = torch.ones(2 if hvd.rank() else 0, 2)
    equal(hvd.allgather(mine), torch.ones(2 * (hvd.size() - 1), 2))


@checks
def check_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    for rows in (size, 2 * size + 1, size - 1, 40_000):
        everyone = [of_rank(r, rows * 3, torch.float32).view(rows, 3) for r in range(size)]
        mine = hvd.reducescatter(everyone[rank], op=hvd.Sum)
        each, more = divmod(rows, size)
        start = rank * each + min(rank, more)
        equal(mine, sum(everyone)[start : start + each + (rank < more)])
    equal(hvd.reducescatter(torch.ones(size)), torch.ones(1))
    equal(
        hvd.reducescatter(torch.full((size,), rank), op=hvd.Max),
        torch.tensor([size - 1]),
    )


@checks
def check_alltoall() -> None:
    size, rank = hvd.size(), hvd.rank()
    for rows in (1, 9000):
        mine = torch.cat([torch.full((rows, 2), 10 * rank + to) for to in range(size)])
        expected = torch.cat([torch.full((rows, 2), 10 * source + rank) for source in range(size)])
        equal(hvd.alltoall(mine), expected)
    # Rank r sends r + 1 rows to rank 0, none to the others but to itself: two.
    splits = [0] * size
    splits[rank] += 2
    splits[0] += rank + 1
    mine = torch.full((sum(splits), 2), rank)
    for given in (splits, torch.tensor(splits, dtype=torch.int32)):
        output, received = hvd.alltoall(mine, given)
        came = [r + 1 + 2 * (r == 0) for r in range(size)] if rank == 0 else [0] * size
        if rank:
            came[rank] = 2
        equal(received, torch.tensor(came, dtype=torch.int32))
        equal(output, torch.cat([torch.full((n, 2), r) for r, n in enumerate(came)]))
    # The last rows may go to nobody.
    output, received = hvd.alltoall(torch.arange(size + 2), [1] * size)
    equal(output, torch.full((size,), rank))
    equal(received, torch.ones(size, dtype=torch.int32))
    output, received = hvd.synchronize(hvd.alltoall_async(torch.ones(size)))
    equal(output, torch.ones(size))
    equal(received, torch.ones(size, dtype=torch.int32))


@checks
def check_splits_that_do_not_fit() -> None:
    size = hvd.size()
    with raises(ValueError, "does not divide over", "splits="):
        hvd.alltoall(torch.ones(size + 1))
    with raises(ValueError, "int32", "int64"):
        hvd.alltoall(torch.ones(size), torch.ones(size, dtype=torch.int64))
    for splits in ([1] * (size + 1), [2] * size, [-1, size + 1, *[0] * (size - 2)]):
        with raises(ValueError, "splits=", f"{size} rows"):
            hvd.alltoall(torch.ones(size), splits)


@checks
def check_asynchronous_forms() -> None:
    size, rank = hvd.size(), hvd.rank()
    mine = torch.full((size, 2), float(rank))
    total = float(sum(range(size)))
    handles = [
        hvd.allreduce_async(mine, op=hvd.Sum),
        hvd.allreduce_async_(mine.clone(), op=hvd.Sum),
        hvd.broadcast_async(mine, 1),
        hvd.broadcast_async_(mine.clone(), 1),
        hvd.allgather_async(mine[:1]),
        hvd.reducescatter_async(mine, op=hvd.Sum),
        hvd.alltoall_async(mine[:, :1].contiguous()),
    ]
    assert len(set(handles)) == len(handles)
    assert all(isinstance(handle, int) for handle in handles)
    ranks = torch.arange(size, dtype=torch.float32)[:, None]
    expected = [
        torch.full((size, 2), total),
        torch.full((size, 2), total),
        torch.ones(size, 2),
        torch.ones(size, 2),
        ranks.expand(size, 2),
        torch.full((1, 2), total),
        ranks,
    ]
    for handle, value in list(zip(handles, expected, strict=True))[::-1]:
        got = hvd.synchronize(handle)
        equal(got[0] if isinstance(got, tuple) else got, value)


@checks
def check_poll_is_false_at_least_once() -> None:
    hvd.barrier()
    for _ in range(3):
        handle = hvd.allreduce_async(torch.ones(3), name="polled")
        hvd.barrier()
        assert not hvd.poll(handle)
        while not hvd.poll(handle):
            pass
        hvd.synchronize(handle)


@checks
def check_unknown_handles() -> None:
    handle = hvd.allreduce_async(torch.ones(3))
    assert hvd.synchronize(handle) is not None
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(10**9) is None
    assert hvd.poll(10**9)


@checks
def check_progress_without_anybody_waiting() -> None:
    handle = hvd.allreduce_async_(torch.ones(300_000), name="alone")
    hvd.poll(handle)
    while not hvd.poll(handle):
        torch.ones(10).sum()
    equal(hvd.synchronize(handle), torch.ones(300_000))


@checks
def check_names_in_opposite_orders() -> None:
    names = [f"n{i}" for i in range(200)]
    for turn in range(3):
        order = names if (hvd.rank() + turn) % 2 else names[::-1]
        handles = {
            name: hvd.allreduce_async(torch.full((i % 7 + 1,), float(turn)), name=name, op=hvd.Sum)
            for i, name in sorted(enumerate(names), key=lambda pair: order.index(pair[1]))
        }
        for i, name in enumerate(names):
            equal(
                hvd.synchronize(handles[name]),
                torch.full((i % 7 + 1,), float(turn * hvd.size())),
            )


@checks
def check_one_name_for_different_kinds() -> None:
    ones = torch.ones(hvd.size())
    handles = [
        hvd.allreduce_async(ones, name="same"),
        hvd.broadcast_async(ones, 0, name="same"),
        hvd.allgather_async(ones, name="same"),
    ]
    for handle in handles:
        hvd.synchronize(handle)


@checks
def check_one_name_for_changing_shapes() -> None:
    for turn in range(6):
        for length in (3, 4, 100_000):
            mine = torch.full((length,), float(hvd.rank() + turn))
            expected = float(sum(range(hvd.size())) + turn * hvd.size())
            equal(hvd.allreduce(mine, name="growing", op=hvd.Sum), torch.full((length,), expected))


@checks
def check_a_name_under_way_is_refused() -> None:
    # Rank 1 comes later, so that the others' first one cannot be done before their second.
    if hvd.rank() != 1:
        handle = hvd.allreduce_async(torch.ones(3), name="twice")
        with raises(DuplicateNameError, "'allreduce.twice'", "still under way"):
            hvd.allreduce_async(torch.ones(3), name="twice")
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async(torch.ones(3), name="twice")
    equal(hvd.synchronize(handle), torch.ones(3))
    equal(hvd.allreduce(torch.ones(3), name="twice"), torch.ones(3))


@checks
def check_what_cannot_be_sent() -> None:
    calls = (
        lambda tensor: hvd.allreduce(tensor),
        lambda tensor: hvd.allreduce_(tensor),
        lambda tensor: hvd.allreduce_async(tensor),
        lambda tensor: hvd.allreduce_async_(tensor),
        lambda tensor: hvd.broadcast(tensor, 0),
        lambda tensor: hvd.broadcast_(tensor, 0),
        lambda tensor: hvd.allgather(tensor),
        lambda tensor: hvd.reducescatter(tensor),
        lambda tensor: hvd.alltoall(tensor),
    )
    for call in calls:
        with raises(ValueError, "Tensor is required to be contiguous."):
            call(torch.ones(hvd.size(), hvd.size() + 1).t())
        with raises(ValueError, "device 'meta'"):
            call(torch.ones(hvd.size(), device="meta"))
        with raises(ValueError, "layout torch.sparse_coo", ".to_dense()"):
            call(torch.eye(hvd.size()).to_sparse())
        with raises(ValueError, "torch.float8_e4m3fn", "float32"):
            call(torch.ones(hvd.size()).to(torch.float8_e4m3fn))
        with raises(ValueError, "torch.Tensor is required, not list"):
            call([1.0, 2.0])
    with raises(ValueError, "op=6", "hvd.Average"):
        hvd.allreduce(torch.ones(3), op=6)
    with raises(ValueError, "Adasum", "int64"):
        hvd.allreduce(torch.tensor([1, 2]), op=hvd.Adasum)
    for kind in (ValueError, RuntimeError):
        with raises(kind, "reducescatter", "Adasum"):
            hvd.reducescatter(torch.ones(hvd.size()), op=hvd.Adasum)
    equal(hvd.allreduce(torch.ones(3)), torch.ones(3))


def differ(name: str, mine: torch.Tensor, *words: str, **options: Any) -> None:
    """Expect an error on every rank, and the same name to work afterwards."""
    with raises(MismatchError, f"'allreduce.{name}'", "rank 0", *words) as _:
        hvd.allreduce(mine, name=name, **options)
    equal(hvd.allreduce(torch.ones(3), name=name, op=hvd.Sum), torch.ones(3) * hvd.size())


@checks
def check_shapes_that_differ() -> None:
    first = hvd.rank() == 0
    assert issubclass(MismatchError, RuntimeError)
    for name in ("small", "large"):
        width = 3 if name == "small" else 300_000
        # The first time nothing was agreed on under this name, the second time something was.
        for _ in range(2):
            mine = torch.ones(width if first else width + 1)
            differ(name, mine, f"float32[{width}]", f"float32[{width + 1}]")


@checks
def check_types_that_differ() -> None:
    mine = torch.ones(3, dtype=torch.float32 if hvd.rank() == 0 else torch.float64)
    for _ in range(3):
        differ("type", mine, "float32[3]", "float64[3]")


@checks
def check_ops_factors_and_roots_that_differ() -> None:
    first = hvd.rank() == 0
    differ("op", torch.ones(3), "sum", "max", op=hvd.Sum if first else hvd.Max)
    differ("scale", torch.ones(3), "scaled by 2 before", prescale_factor=2.0 if first else 1.0)
    with raises(MismatchError, "root 0", "root 1"):
        hvd.broadcast(torch.ones(3), 0 if first else 1, name="root")
    with raises(MismatchError, "allgather", "float32[3, 1]", "float32[3, 2]"):
        hvd.allgather(torch.ones(3, 1 if first else 2), name="width")


@checks
def check_two_known_variants_that_differ() -> None:
    for length in (3, 4):
        hvd.allreduce(torch.ones(length), name="variants")
    with raises(MismatchError, "float32[3]", "float32[4]", "allreduce.variants"):
        hvd.allreduce(torch.ones(3 if hvd.rank() else 4), name="variants")
    for length in (3, 4):
        equal(hvd.allreduce(torch.ones(length), name="variants"), torch.ones(length))


@checks
def check_errors_of_asynchronous_operations_come_with_synchronize() -> None:
    handle = hvd.allreduce_async(torch.ones(3 + hvd.rank()), name="late")
    with raises(MismatchError, "rank 1"):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None


@checks
def check_compression() -> None:
    class Half:
        """Sends float16, as Horovod's Compression.fp16 does."""

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
            return tensor.half(), tensor.dtype

        @staticmethod
        def decompress(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
            return tensor.to(dtype)

    mine = torch.full((hvd.size(),), 1 / 3)
    equal(hvd.allreduce(mine, compression=Half), mine.half().float())
    equal(hvd.reducescatter(mine, compression=Half), mine.half().float()[:1])


@checks
def check_handles_left_alone_do_not_break_shutdown() -> None:
    hvd.allreduce_async(torch.ones(3), name="left")
    if hvd.rank() == 0:
        hvd.allreduce_async(torch.ones(3))
    left = hvd.allreduce_async(torch.ones(3), name="left too")
    hvd.shutdown()
    with raises(NotInitializedError, "hvd.init()"):
        hvd.synchronize(left)
    hvd.init()
    # Unnamed operations count from the start again, though rank 0 left one more open than others.
    equal(hvd.allreduce(torch.ones(3)), torch.ones(3))
    assert hvd.synchronize(left) is None
    hvd.barrier()


ranks = on((2, "shm"), (3, "shm"), (4, "shm"), (3, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)

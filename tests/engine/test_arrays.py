"""Collectives on NumPy arrays, on real ranks."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.engine import arrays, context
from farandole.engine.context import rank, size
from farandole.errors import MismatchError, UsageError
from farandole.transport.reduction import SUM, Reduction
from tests.torch.checks import Check, Checks, Ranks, on, raises

pytestmark = pytest.mark.ranks
checks = Checks()
ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


@checks
def check_allreduce() -> None:
    mine = np.arange(6, dtype=np.float32).reshape(2, 3) + rank()
    got = arrays.allreduce(mine)
    assert np.allclose(got, np.arange(6).reshape(2, 3) + (size() - 1) / 2)
    assert mine[0, 0] == rank(), "the caller's array was written to"
    assert arrays.allreduce(np.float64(rank()), how=SUM) == sum(range(size()))
    turned = arrays.allreduce(mine.T, how=SUM)
    assert np.allclose(turned, size() * got.T)


@checks.of(float16="float16", bfloat16="bfloat16")
def check_half_precision(name: str) -> None:
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else np.float16)
    got = arrays.allreduce(np.full(5, rank() + 1, dtype), how=SUM)
    assert got.dtype == dtype
    assert got.astype(float).tolist() == [sum(range(1, size() + 1))] * 5


@checks
def check_broadcast() -> None:
    mine = np.full((2, 2), rank(), np.int64)
    assert (arrays.broadcast(mine, 1) == 1).all()
    assert (mine == rank()).all()


@checks
def check_allgather() -> None:
    got, rows = arrays.allgather_rows(np.full((rank(), 2), rank(), np.float32))
    assert rows == list(range(size()))
    assert got[:, 0].tolist() == [r for r in range(size()) for _ in range(r)]
    with raises(UsageError, "at least one dimension"):
        arrays.allgather(np.float32(1.0))


@checks
def check_alltoall() -> None:
    mine = np.arange(size(), dtype=np.int32) + 10 * rank()
    got, received = arrays.alltoall(mine)
    assert got.tolist() == [rank() + 10 * r for r in range(size())]
    assert received == [1] * size()


@checks
def check_reducescatter() -> None:
    got = arrays.reducescatter(np.ones((size() + 1, 2), np.float32), how=SUM)
    assert got.shape == (2 if rank() == 0 else 1, 2)
    assert (got == size()).all()


@checks.of(uint16="uint16", uint32="uint32", uint64="uint64")
def check_unsigned_numbers_are_moved(dtype: str) -> None:
    most = np.iinfo(dtype).max
    mine = np.array([most - rank(), rank()], dtype)
    assert arrays.broadcast(mine, 1).tolist() == [most - 1, 1]
    everyone = [value for r in range(size()) for value in (most - r, r)]
    gathered = arrays.allgather(mine)
    assert (gathered.dtype, gathered.tolist()) == (dtype, everyone)
    got, _ = arrays.alltoall(np.repeat(mine[:1], size()))
    assert got.tolist() == [most - r for r in range(size())]
    with raises(UsageError, "cannot be sent"):
        arrays.allreduce(mine)


@checks
def check_operations_of_a_set() -> None:
    context.shutdown()
    context.init(process_sets="dynamic")
    members = [0, size() - 1] if size() > 2 else [1]
    some = context.add_process_set(members)
    mine = np.full((2, 1), rank(), np.float32)
    if some.included():
        engine = context.engine_of(some)
        count = len(members)
        assert (arrays.allreduce(mine, how=SUM, engine=engine) == sum(members)).all()
        assert (arrays.broadcast(mine, members[-1], engine=engine) == members[-1]).all()
        gathered, rows = arrays.allgather_rows(mine, engine=engine)
        assert (rows, gathered[::2, 0].tolist()) == ([2] * count, members)
        got, received = arrays.alltoall(np.repeat(mine, count, 0), engine=engine)
        assert (received, got[::2, 0].tolist()) == ([2] * count, members)
        got = arrays.reducescatter(np.ones((count, 1), np.float32), how=SUM, engine=engine)
        assert got.tolist() == [[count]]
        assert (
            arrays.grouped_allreduce([mine, mine], how=SUM, engine=engine)[1] == sum(members)
        ).all()
        arrays.barrier(engine)
        if size() > 2:
            with raises(UsageError, "root_rank=1 is not in the process set", "[0, 2]"):
                arrays.broadcast(mine, 1, engine=engine)
    arrays.barrier()


@checks
def check_barrier_and_errors() -> None:
    arrays.barrier()
    with raises(UsageError, "cannot be sent", "float32"):
        arrays.allreduce(np.array(["text"]))
    with raises(UsageError, "bool"):
        arrays.allreduce(np.ones(2, np.bool_))
    with raises(MismatchError, "rank 0", "[3]"):
        arrays.allreduce(np.ones(3 if rank() == 0 else 4, np.float32), "differs")
    assert arrays.allreduce(np.ones(1), how=Reduction(op="product")) == 1


@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)

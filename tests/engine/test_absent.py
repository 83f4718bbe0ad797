"""What a rank that has joined brings: values that change no result."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.engine.named import stand_in
from farandole.engine.operations import Allgather, Allreduce, Grouped
from farandole.engine.signature import Signature
from farandole.transport.reduction import STORAGE, Reduction, fold


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("op", ["sum", "min", "max", "product"])
def test_it_changes_no_result(dtype: str, op: str) -> None:
    if dtype.startswith("complex") and op in ("min", "max"):
        pytest.skip("complex numbers have no order")
    values = np.array([1, 0, 1, 1]).astype(bool if dtype == "bool" else np.float32)
    given = stand_in(Signature.reducing("allreduce", dtype, (4,), Reduction()))
    assert isinstance(given, Allreduce)
    # Ones and zeros look the same in every type's storage, but for the halves' ones.
    mine = values.astype(STORAGE[dtype])
    if dtype in ("float16", "bfloat16"):
        mine = mine * (0x3C00 if dtype == "float16" else 0x3F80)
    absent = stand_in(Signature.reducing("allreduce", dtype, (4,), Reduction(op=op)))
    assert isinstance(absent, Allreduce)
    result = np.empty_like(mine)
    fold([absent.source.data, mine.astype(STORAGE[dtype])], [result], dtype, Reduction(op=op))
    assert result.tolist() == mine.tolist()


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("factor", [0.1, 1 / 49, 0.3, 1.5, 1.0])
def test_a_factor_changes_no_product(dtype: str, factor: float) -> None:
    how = Reduction(op="product", prescale=factor)
    absent = stand_in(Signature.reducing("allreduce", dtype, (3,), how))
    assert isinstance(absent, Allreduce)
    mine = np.array([0, 10, 100]).astype(STORAGE[dtype])
    alone, result = np.empty_like(mine), np.empty_like(mine)
    fold([mine], [alone], dtype, how)
    fold([absent.source.data, mine], [result], dtype, how)
    np.testing.assert_allclose(result, alone, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "int8", "int64"])
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("factor", [0.5, 2.0, -1.0, 0.0])
def test_a_factor_changes_no_least_or_most(dtype: str, op: str, factor: float) -> None:
    how = Reduction(op=op, prescale=factor)
    absent = stand_in(Signature.reducing("allreduce", dtype, (3,), how))
    assert isinstance(absent, Allreduce)
    mine = np.array([-60, 0, 60]).astype(STORAGE[dtype])
    alone, result = np.empty_like(mine), np.empty_like(mine)
    fold([mine], [alone], dtype, how)
    fold([absent.source.data, mine], [result], dtype, how)
    assert result.tolist() == alone.tolist()


def test_no_rows_are_brought_to_a_meeting() -> None:
    absent = stand_in(Signature("meeting", "uint8", (17,)))
    assert isinstance(absent, Allgather)
    assert absent.extra == 0


def test_a_group_has_its_members() -> None:
    members = tuple(
        Signature.reducing("allreduce", "float32", (count,), Reduction()) for count in (3, 5)
    )
    absent = stand_in(Signature("grouped allreduce", "uint8", (32,), members=members))
    assert isinstance(absent, Grouped)
    assert absent.extra == [None, None]

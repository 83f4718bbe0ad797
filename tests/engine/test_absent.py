"""What a rank that has joined brings: values that change no result."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.engine.absent import neutral, stand_in
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


def test_a_product_is_not_changed_by_a_factor() -> None:
    how = Reduction(op="product", prescale=4.0)
    absent = stand_in(Signature.reducing("allreduce", "float32", (1,), how))
    assert isinstance(absent, Allreduce)
    result = np.empty(1, np.float32)
    fold([absent.source.data, np.full(1, 3.0, np.float32)], [result], "float32", how)
    assert result.tolist() == [12.0]


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


def test_neutral_integers_are_at_the_ends_of_their_range() -> None:
    assert (neutral("min", "int8"), neutral("max", "int8")) == (127, -128)
    assert (neutral("min", "uint8"), neutral("max", "uint8")) == (255, 0)

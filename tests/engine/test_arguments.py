"""Horovod's arguments as the engine understands them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farandole.engine import context
from farandole.engine.arguments import (
    Average,
    Product,
    check_arithmetic,
    check_root,
    check_rows,
    gradient_reduction,
    reduction_of,
    scattered_rows,
    splits_of,
)
from farandole.errors import UsageError
from farandole.transport.reduction import AVERAGE, SUM, Reduction


@pytest.fixture
def _alone() -> Iterator[None]:
    context.init()
    yield
    context.shutdown()


def test_reductions() -> None:
    assert reduction_of(None, None).op == "average"
    assert reduction_of(True, None).op == "average"
    assert reduction_of(False, None).op == "sum"
    assert reduction_of(None, Product, 2.0, 3.0) == Reduction(
        op="product", prescale=2.0, postscale=3.0
    )
    with pytest.raises(ValueError, match="op=7"):
        reduction_of(None, 7)
    with pytest.raises(UsageError, match="not both"):
        reduction_of(True, Product)


def test_the_division_of_an_average_in_two() -> None:
    assert gradient_reduction(Average, 1.0) == AVERAGE
    assert gradient_reduction(Average, 4.0) == Reduction(op="average", prescale=0.25, postscale=4.0)
    with pytest.raises(UsageError, match="only"):
        gradient_reduction(Product, 2.0)
    with pytest.raises(UsageError, match="above 0"):
        gradient_reduction(Average, 0.0)


def test_arithmetic_that_a_type_does_not_have() -> None:
    check_arithmetic("bool", SUM)
    check_arithmetic("complex64", AVERAGE)
    with pytest.raises(UsageError, match="bool"):
        check_arithmetic("bool", AVERAGE)
    with pytest.raises(UsageError, match="bool"):
        check_arithmetic("bool", Reduction(prescale=2.0))
    with pytest.raises(UsageError, match="no order"):
        check_arithmetic("complex128", Reduction(op="max"))


@pytest.mark.usefixtures("_alone")
def test_roots_rows_and_splits_of_one_worker() -> None:
    check_root(0)
    with pytest.raises(UsageError, match="root_rank=1"):
        check_root(1)
    check_rows((0,), "allgather")
    with pytest.raises(UsageError, match="alltoall needs"):
        check_rows((), "alltoall")
    assert scattered_rows(5) == [5]
    assert splits_of(5, None) == [5]
    with pytest.raises(UsageError, match="add up to 5"):
        splits_of(5, [6])
    assert splits_of(5, [4]) == [4], "the last row goes to nobody"

"""The fold: rank order, one division, one rounding, any aliasing."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
import torch

from farandole.transport.reduction import (
    BLOCK_ELEMENTS,
    OPERATIONS,
    STORAGE,
    Reduction,
    by_hosts,
    fold,
    small_fold,
)
from tests.transport.reference import (
    Array,
    allows,
    reduced,
    reduced_by_hosts,
    same_bits,
    values,
)


def folded(sources: list[Array], dtype: str, how: Reduction) -> Array:
    target = np.zeros_like(sources[0])
    fold(sources, [target], dtype, how)
    return target


def halves(dtype: str, *numbers: float) -> Array:
    return torch.tensor(numbers).to(getattr(torch, dtype)).view(torch.int16).numpy().view(np.uint16)


@pytest.mark.parametrize("dtype", STORAGE)
def test_every_type_and_operation_agrees_with_the_definition(dtype: str) -> None:
    for op, ranks in product(OPERATIONS, range(1, 6)):
        how = Reduction(op=op)
        if allows(dtype, how):
            sources = [values(dtype, 257, seed=rank) for rank in range(ranks)]
            assert same_bits(folded(sources, dtype, how), reduced(sources, dtype, how)), (op, ranks)


@pytest.mark.parametrize(
    ("sources", "average"),
    [
        ([[7, -7], [0, 0]], [3, -3]),
        ([[1, -1], [1, -1], [0, 0]], [0, 0]),
        ([[5, -5], [-6, 6], [-3, 3]], [-1, 1]),
    ],
)
def test_integer_averages_are_cut_toward_zero(sources: list[list[int]], average: list[int]) -> None:
    arrays = [np.array(source, np.int32) for source in sources]
    assert folded(arrays, "int32", Reduction(op="average")).tolist() == average


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_smallest_integer_can_be_averaged(dtype: str) -> None:
    low = np.iinfo(dtype).min
    arrays = [np.array([value], dtype) for value in (low, 0, 0)]
    assert folded(arrays, dtype, Reduction(op="average")).tolist() == [-(-low // 3)]


def test_more_ranks_than_the_type_can_count() -> None:
    arrays = [np.zeros(1, np.int8) for _ in range(200)]
    arrays[0][0] = -100
    assert folded(arrays, "int8", Reduction(op="average")).tolist() == [0]


def test_large_integers_keep_their_digits() -> None:
    arrays = [np.array([2**62 - 1], np.int64), np.zeros(1, np.int64)]
    assert folded(arrays, "int64", Reduction(op="average")).tolist() == [2**61 - 1]


def test_sums_fold_in_rank_order() -> None:
    # (1 + 1e8) - 1e8 is 0 in float32; 1 + (1e8 - 1e8) would be 1.
    arrays = [np.array([value], np.float32) for value in (1.0, 1e8, -1e8)]
    assert folded(arrays, "float32", Reduction()).tolist() == [0.0]
    assert folded(arrays[::-1], "float32", Reduction()).tolist() == [1.0]


def test_averages_divide_once() -> None:
    one, two, three = (np.float32(value) for value in (0.1, 0.2, 0.3))
    count = np.float32(3)
    # Dividing every rank's part would round three times, and come out elsewhere.
    assert one / count + two / count + three / count != (one + two + three) / count
    arrays = [np.array([value]) for value in (one, two, three)]
    got = folded(arrays, "float32", Reduction(op="average"))
    assert got[0] == (one + two + three) / count


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_add_up_in_float32_and_round_once(dtype: str) -> None:
    # In the half type itself, 1 + eps/4 is 1 each time; together the four quarters count.
    eps = torch.finfo(getattr(torch, dtype)).eps
    sources = [halves(dtype, 1.0), *(halves(dtype, eps / 4) for _ in range(4))]
    assert same_bits(folded(sources, dtype, Reduction()), halves(dtype, 1.0 + eps))


def test_halves_do_not_overflow_on_the_way_to_an_average() -> None:
    sources = [halves("float16", 60000.0)] * 3
    assert same_bits(folded(sources, "float16", Reduction(op="average")), sources[0])
    assert torch.isinf(
        torch.from_numpy(folded(sources, "float16", Reduction())).view(torch.float16)
    ).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
@pytest.mark.parametrize("ranks", range(1, 6))
def test_a_target_may_be_any_of_the_sources(dtype: str, ranks: int) -> None:
    how = Reduction(op="average", prescale=0.5, postscale=2.0)
    for alias in range(ranks):
        sources = [values(dtype, 100, seed=rank) for rank in range(ranks)]
        wanted = reduced([source.copy() for source in sources], dtype, how)
        second = np.zeros_like(sources[0])
        fold(sources, [sources[alias], second], dtype, how)
        assert same_bits(sources[alias], wanted)
        assert same_bits(second, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [0, 1, BLOCK_ELEMENTS, 2 * BLOCK_ELEMENTS + 1])
def test_any_length(dtype: str, count: int) -> None:
    sources = [values(dtype, count, seed=rank) for rank in range(3)]
    assert same_bits(folded(sources, dtype, Reduction()), reduced(sources, dtype, Reduction()))


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_not_a_number_and_infinity_pass_without_a_warning(op: str, dtype: str) -> None:
    numbers = [np.nan, np.inf, -np.inf, 6e4, 1.0]
    if dtype in ("float32", "float64"):
        sources = [np.roll(np.array(numbers, dtype), rank) for rank in range(3)]
    else:
        sources = [np.roll(halves(dtype, *numbers), rank) for rank in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = folded(sources, dtype, Reduction(op=op, prescale=2.0))
    tensor = torch.from_numpy(got)
    wide = (tensor.view(torch.float16) if dtype == "float16" else tensor).double()
    # Each NaN meets every place within three ranks.
    assert torch.isnan(wide[:3]).all()


def test_infinite_complex_numbers_stay_so() -> None:
    arrays = [np.array([complex(np.inf, 1)], np.complex64), np.zeros(1, np.complex64)]
    got = folded(arrays, "complex64", Reduction(op="average", postscale=4.0))
    assert got.tolist() == [complex(np.inf, 2)]


def test_integers_are_scaled_in_double_precision() -> None:
    arrays = [np.array([7, -7], np.int64)] * 2
    how = Reduction(prescale=0.5, postscale=1.5)
    # 7 * 0.5 is cut to 3 on every rank; 6 * 1.5 is 9.
    assert folded(arrays, "int64", how).tolist() == [9, -9]


@pytest.mark.parametrize("dtype", STORAGE)
def test_a_fold_in_two_levels_is_what_it_says(dtype: str) -> None:
    hosts = [[0, 2, 3], [1, 4]]
    sources = [values(dtype, 257, seed=rank) for rank in range(5)]
    for op, (pre, post) in product(OPERATIONS, [(1.0, 1.0), (0.5, 3.0)]):
        how = Reduction(op=op, prescale=pre, postscale=post)
        if not allows(dtype, how):
            continue
        inside, between = by_hosts(how, dtype, 5)
        partial = [folded([sources[r] for r in ranks], dtype, inside) for ranks in hosts]
        got = folded(partial, dtype, between)
        assert same_bits(got, reduced_by_hosts(sources, hosts, dtype, how)), how
        if STORAGE[dtype].kind in "iub" and dtype not in ("float16", "bfloat16"):
            assert same_bits(got, reduced(sources, dtype, how)), how


def test_an_average_of_halves_does_not_overflow_between_two_levels() -> None:
    inside, between = by_hosts(Reduction(op="average"), "float16", 4)
    partial = folded([halves("float16", 40000.0)] * 2, "float16", inside)
    assert folded([partial, partial], "float16", between).view(np.float16).tolist() == [40000.0]


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("count", [2, 3])
def test_a_small_fold_is_the_same(op: str, count: int) -> None:
    how = Reduction(op=op)
    parts = [np.arange(5, dtype=np.float32) - rank for rank in range(count)]
    result = np.empty(5, np.float32)
    # Warnings are errors here: one on each rank and operation would be in the way of users.
    small_fold("float32", how, count)(parts, result)
    assert result.tolist() == folded(parts, "float32", how).tolist()

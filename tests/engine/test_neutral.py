"""Values that change no result: what they are, and where a type has none."""

from __future__ import annotations

import math

import pytest

from farandole.engine.coordinator import neutral


def test_integers_are_at_the_ends_of_their_range() -> None:
    assert (neutral("min", "int8"), neutral("max", "int8")) == (127, -128)
    assert (neutral("min", "uint8"), neutral("max", "uint8")) == (255, 0)


def test_a_negative_factor_swaps_the_ends() -> None:
    assert neutral("min", "float32", -2.0) == -math.inf
    assert neutral("max", "int16", -1.0) == 32767


def test_scaled_they_stay_in_their_range() -> None:
    assert neutral("min", "int8", 4.0) == 31
    assert neutral("max", "int8", 4.0) == -32
    assert neutral("max", "int8", 0.5) == -128
    # Of minus 128 there is no positive.
    assert neutral("min", "int8", -1.0) == -127


@pytest.mark.parametrize(
    ("dtype", "factor", "value"),
    [
        ("int32", 1.0, 1),
        ("int32", 0.25, 4),
        ("int32", 0.3, 4),
        # 49 times what is a 49th here is less than one.
        ("int32", 1 / 49, 50),
        ("int32", 1.9, 1),
        ("int32", -0.5, -2),
        ("float32", 4.0, 0.25),
        ("bool", 3.0, 1),
    ],
)
def test_what_is_one_when_scaled(dtype: str, factor: float, value: float) -> None:
    assert neutral("product", dtype, factor) == value


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [
        ("int32", 2.0),
        ("int8", 0.001),
        ("uint8", -0.5),
        ("int64", 1e-300),
        ("float16", 1e6),
        ("float32", 1e-40),
        ("float64", math.inf),
    ],
)
def test_some_types_have_none(dtype: str, factor: float) -> None:
    assert neutral("product", dtype, factor) is None

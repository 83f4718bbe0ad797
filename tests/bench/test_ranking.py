"""Rank correlation against its textbook values."""

from __future__ import annotations

import pytest

from farandole.bench.ranking import order_text, ranks, spearman


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 25.0, 400.0], 1.0),
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], -1.0),
        # 1 - 6 sum(d^2) / (n (n^2 - 1)), with two neighbours of four swapped: 1 - 12 / 60
        ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], 0.8),
        ([1.0, 1.0], [1.0, 2.0], 0.0),
        ([1.0, 1.0], [2.0, 2.0], 1.0),
    ],
)
def test_spearman(first: list[float], second: list[float], expected: float) -> None:
    assert spearman(first, second) == pytest.approx(expected)


def test_equal_values_share_their_places() -> None:
    assert ranks([5.0, 1.0, 5.0]) == [2.5, 1.0, 2.5]


def test_the_highest_comes_first() -> None:
    assert order_text({"a": 10.0, "b": 1234.5}) == "b (1,234/s) > a (10/s)"

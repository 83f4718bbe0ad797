from __future__ import annotations

import pytest

from farandole.study.search import largest, next_trial


def find(most: int, start: int = 32) -> tuple[int | None, list[int]]:
    tried: dict[int, bool] = {}
    while (batch := next_trial(start, tried)) is not None:
        assert batch not in tried
        tried[batch] = batch <= most
    return largest(tried), list(tried)


@pytest.mark.parametrize("most", [1, 3, 31, 32, 33, 100, 1000, 5000])
def test_it_finds_the_largest_within_an_eighth(most: int) -> None:
    found, tried = find(most)
    assert found is not None
    assert found <= most <= found + max(1, found // 8)
    assert len(tried) <= 20


def test_nothing_fits() -> None:
    assert find(0)[0] is None


def test_it_ends_where_everything_fits() -> None:
    assert find(10**9)[0] == 1 << 20


def test_it_doubles_first() -> None:
    assert find(250)[1][:5] == [32, 64, 128, 256, 192]

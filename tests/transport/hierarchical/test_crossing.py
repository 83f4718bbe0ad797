"""Memory that leaders lend, and windows of equal shares."""

from __future__ import annotations

import numpy as np

from farandole.transport.choose import SoloTransport
from farandole.transport.hierarchical.relay import Crossing, padded


def test_memory_is_lent_again() -> None:
    crossing = Crossing(SoloTransport())
    like = np.zeros(1, np.float32)
    first = crossing.borrow(1000, like)
    place = first.ctypes.data
    assert (len(first), first.dtype) == (1000, np.float32)
    crossing.give_back(first)
    again = crossing.borrow(100, np.zeros(1, np.complex128))
    assert (len(again), again.dtype) == (100, np.complex128)
    assert again.ctypes.data == place
    other = crossing.borrow(10, like)
    assert other.ctypes.data != place, "what is lent is not lent twice"
    crossing.give_back(again)
    assert len(crossing.borrow(5000, like)) == 5000, "too small a piece is not lent"


def test_small_pieces_are_kept_beside_large_ones() -> None:
    crossing = Crossing(SoloTransport())
    like = np.zeros(1, np.float32)
    lent = [crossing.borrow(count, like) for count in (1000, 10)]
    owners = [each.base for each in lent]
    for each in lent:
        crossing.give_back(each)
    again = [crossing.borrow(count, like).base for count in (1000, 10)]
    assert all(now is before for now, before in zip(again, owners, strict=True))


def test_more_than_two_hosts_have_equal_shares() -> None:
    assert padded(7, 2) == 7
    assert [padded(count, 3) for count in (0, 1, 3, 7)] == [0, 3, 3, 9]

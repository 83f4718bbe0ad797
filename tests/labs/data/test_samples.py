"""The order of samples is fixed, and balanced from its beginning on."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.labs.data.samples import balanced_order


@pytest.mark.parametrize("sizes", [(50, 50), (10, 90), (1, 7, 30)])
def test_every_beginning_has_each_group_in_its_share(sizes: tuple[int, ...]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    order = balanced_order(groups, seed=1)
    assert sorted(order.tolist()) == list(range(len(groups)))
    for count in range(1, len(groups) + 1):
        found = np.bincount(groups[order[:count]], minlength=len(sizes))
        expected = count * np.array(sizes) / len(groups)
        # One of a group in each of its parts: it is ahead or behind by less than one of its own,
        # and by what the others are.
        assert np.abs(found - expected).max() <= len(sizes)


def test_the_order_is_shuffled_and_repeats() -> None:
    groups = np.zeros(1000, int)
    order = balanced_order(groups, seed=1)
    assert np.array_equal(order, balanced_order(groups, seed=1))
    assert not np.array_equal(order, balanced_order(groups, seed=2))
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.15

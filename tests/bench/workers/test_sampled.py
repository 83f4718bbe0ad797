"""What recording costs, from blocks whose times are known."""

from __future__ import annotations

import pytest

from farandole.bench.workers.sampled import ratios

NONE = [False] * 4


def test_without_sampled_steps_it_is_the_ratio_of_medians() -> None:
    assert ratios([[3.0, 2.0, 2.0, 9.0]], [[2.0, 2.0, 5.0, 1.0]], [NONE]) == [1.25]


def test_what_sampled_steps_take_is_shared_out_over_all() -> None:
    # One step of eight takes 0.8 more: 0.1 for each.
    recorded, flags = [[1.0, 1.8, 1.0, 1.0], [2.0] * 4], [[False, True, False, False], NONE]
    found = ratios(recorded, [[1.0] * 4, [2.0] * 4], flags)
    assert found == pytest.approx([1.1, 1.05])


def test_of_several_sampled_steps_one_that_was_disturbed_changes_little() -> None:
    flags = [[False, False, False, True]] * 3
    recorded = [[1.0, 1.0, 1.0, 1.4], [1.0, 1.0, 1.0, 1.4], [1.0, 1.0, 1.0, 8.0]]
    assert ratios(recorded, [[1.0] * 4] * 3, flags) == pytest.approx([1.1] * 3)

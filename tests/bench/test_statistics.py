"""The arithmetic, on samples whose answers are known from elsewhere."""

from __future__ import annotations

import math

import pytest

from farandole.bench.statistics import launch_value, ratio, slowest_rank, summarize, welch


def test_the_slowest_rank_counts_step_by_step() -> None:
    assert slowest_rank([[1.0, 5.0, 2.0], [3.0, 4.0, 2.0]]) == [3.0, 5.0, 2.0]


def test_ranks_with_different_numbers_of_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        slowest_rank([[1.0, 2.0], [1.0]])


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([5.0], 5.0), ([1.0, 100.0, 3.0], 3.0), ([2.0, 8.0], 4.0), ([1.0, 2.0, 8.0, 900.0], 4.0)],
)
def test_a_launch_is_its_median_in_log_space(samples: list[float], expected: float) -> None:
    assert launch_value(samples) == pytest.approx(expected)


def test_summary_of_logs_minus_one_zero_one() -> None:
    # The mean log is 0 and its standard deviation 1; t(0.975, 2) = 4.302653.
    found = summarize([math.exp(-1), 1.0, math.exp(1)])
    half_width = 4.302653 / math.sqrt(3)
    assert found.value == pytest.approx(1.0)
    assert found.low == pytest.approx(math.exp(-half_width), rel=1e-6)
    assert found.high == pytest.approx(math.exp(half_width), rel=1e-6)


def test_one_launch_has_no_interval() -> None:
    found = summarize([0.5])
    assert (found.value, found.low, found.high) == (0.5, None, None)
    assert ratio([1.0, 2.0], [3.0]).low is None


def test_welch_agrees_with_a_published_example() -> None:
    # Second example of the Wikipedia article on Welch's t-test: t = 1.57, nu = 9.9; its samples.
    first = [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8]
    second = [
        *(21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8),
        *(20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5, 23.5, 21.5, 21.8),
    ]
    found = welch(second, first)
    assert found.low is not None
    assert found.high is not None
    # With t = 1.57 and nu = 9.9 (t quantile 2.231) the half width is 2.231 / 1.57 differences.
    assert (found.high - found.low) / 2 / found.value == pytest.approx(2.231 / 1.57, rel=0.01)


def test_welch_agrees_with_scipy() -> None:
    from scipy.stats import ttest_ind

    first, second = [1.0, 2.0, 4.0, 3.5], [2.5, 2.75, 2.6]
    expected = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    found = welch(first, second)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_ratio_is_welch_on_logs_and_turns_round() -> None:
    slow, fast = [4.0, 4.2, 3.9], [1.0, 1.1, 0.95]
    forth, back = ratio(slow, fast), ratio(fast, slow)
    assert forth.low is not None
    assert forth.high is not None
    assert forth.value == pytest.approx(1 / back.value)
    assert (forth.low, forth.high) == pytest.approx((1 / back.high, 1 / back.low))  # type: ignore[operator]
    assert forth.low < forth.value < forth.high


def test_equal_launches_give_an_interval_of_no_width() -> None:
    found = ratio([4.0, 4.0], [2.0, 2.0])
    assert (found.low, found.value, found.high) == pytest.approx((2.0, 2.0, 2.0))

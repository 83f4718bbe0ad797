"""Operations inside of tf.function; the checks are in checks/callback.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("callback")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)


@each("callback")
def test_one_core_and_one_thread(narrow: Launch, check: str) -> None:
    narrow.check(check)


def test_a_rank_that_is_killed_is_named(pair: Launch) -> None:
    """Not the one that waits for it in a tf.function, whose error is TensorFlow's."""
    assert pair.code == 128 + 9
    assert "farandole: rank 1" in pair.errors
    assert "SIGKILL" in pair.errors

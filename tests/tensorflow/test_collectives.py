"""Collective operations on TensorFlow's tensors; the checks are in checks/collectives.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("collectives")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)


@pytest.mark.soak
@each("collectives")
def test_three_ranks(three: Launch, check: str) -> None:
    three.check(check)

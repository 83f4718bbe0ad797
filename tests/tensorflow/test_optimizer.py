"""DistributedOptimizer; the checks are in checks/optimizer.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("optimizer")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)

"""DistributedGradientTape; the checks are in checks/tape.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("tape")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)


@each("tape")
def test_one_core_and_one_thread(narrow: Launch, check: str) -> None:
    narrow.check(check)

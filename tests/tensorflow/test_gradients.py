"""A tape's gradients in their buckets; the checks are in checks/gradients.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("gradients")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)


@each("gradients")
def test_one_core_and_one_thread(narrow: Launch, check: str) -> None:
    narrow.check(check)

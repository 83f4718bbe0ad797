"""Numbers as tensors; the checks are in checks/sizes.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("sizes")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)

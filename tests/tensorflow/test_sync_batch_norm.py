"""SyncBatchNormalization; the checks are in checks/sync_batch_norm.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("sync_batch_norm")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)


@pytest.mark.soak
@each("sync_batch_norm")
def test_three_ranks(three: Launch, check: str) -> None:
    three.check(check)

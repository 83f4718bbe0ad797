"""tf.IndexedSlices; the checks are in checks/sparse.py."""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("sparse")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)

"""Sharded tf.data.Datasets on TensorFlow, with real ranks; other backends are in test_sharding."""

from __future__ import annotations

import pytest

from tests.keras.checking import LAUNCH_S, TENSORFLOW, Check, Outcomes, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@each("data.tf_dataset", TENSORFLOW)
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

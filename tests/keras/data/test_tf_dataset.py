"""Sharded tf.data.Datasets on TensorFlow, with real ranks; other backends are in test_sharding."""

from __future__ import annotations

import pytest

from tests.keras.checking import LAUNCH_S, Check, Outcomes, World, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@each("data.tf_dataset", World(backend="tensorflow"))
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

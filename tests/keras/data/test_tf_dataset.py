"""Sharded tf.data.Datasets on TensorFlow, with real ranks; other backends are in test_sharding."""

from __future__ import annotations

from tests.checking import LAUNCHES, TENSORFLOW, Check, Outcomes, each

pytestmark = LAUNCHES


@each("keras.data.tf_dataset", TENSORFLOW)
def test_on_two_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)

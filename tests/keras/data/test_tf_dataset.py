"""Sharded tf.data.Datasets on TensorFlow, with real ranks; other backends are in test_sharding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keras.checking import LAUNCH_S, Launch, names_of

_PROGRAM = Path(__file__).with_name("tf_dataset.py")

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_two_ranks(check: str) -> None:
    Launch(program=_PROGRAM, backend="tensorflow").expect(check)

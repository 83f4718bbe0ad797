"""Sharded tf.data.Datasets in fits of real ranks: on TensorFlow, and on another backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keras.checking import expect, names_of

_PROGRAM = Path(__file__).with_name("tf_data.py")


@pytest.mark.ranks
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_two_ranks(check: str, backend: str) -> None:
    pytest.importorskip("tensorflow", reason="needs tf.data: pip install 'farandole[tensorflow]'")
    expect(_PROGRAM, check, backend, 2)

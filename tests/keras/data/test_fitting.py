"""Sharded arrays, PyDatasets and DataLoaders in fits of real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keras.checking import expect, names_of

_PROGRAM = Path(__file__).with_name("fitting.py")


@pytest.mark.ranks
@pytest.mark.parametrize(("backend", "size"), [("torch", 2), ("jax", 2)])
@pytest.mark.parametrize("check", names_of(_PROGRAM))
def test_on_real_ranks(check: str, backend: str, size: int) -> None:
    expect(_PROGRAM, check, backend, size)

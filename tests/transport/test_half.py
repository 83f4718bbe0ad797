"""Half precision as bits: NumPy's way and torch's give the same."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from farandole.transport.reduction import narrow, widen

_VALUES = np.concatenate(
    [
        np.array([0.0, -0.0, 1.0, 1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-9, 65504, 65520, 1e30, -1e-30]),
        np.array([np.inf, -np.inf, 6e-8, 2.0**-24, 2.0**-25, 3.4e38]),
        np.random.default_rng(1).normal(size=1000) * 10.0 ** np.arange(-10, 10).repeat(50),
    ]
).astype(np.float32)


@pytest.fixture
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")


def bits(dtype: str) -> np.ndarray[Any, Any]:
    out = np.empty(len(_VALUES), np.uint16)
    with np.errstate(all="ignore"):
        narrow(_VALUES, out, dtype)
    return out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numpy_rounds_as_torch_does(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = torch.from_numpy(_VALUES).to(getattr(torch, dtype)).view(torch.int16).numpy()
    assert np.array_equal(bits(dtype), wanted.view(np.uint16))
    monkeypatch.delitem(sys.modules, "torch")
    assert np.array_equal(bits(dtype), wanted.view(np.uint16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_widening_is_exact_both_ways(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    by_torch = widen(every, dtype)
    monkeypatch.delitem(sys.modules, "torch")
    by_numpy = widen(every, dtype)
    assert np.array_equal(by_torch, by_numpy, equal_nan=True)


@pytest.mark.usefixtures("_without_torch")
def test_not_a_number_stays_one() -> None:
    out = np.empty(2, np.uint16)
    narrow(np.array([np.nan, -np.nan], np.float32), out, "bfloat16")
    assert np.isnan(widen(out, "bfloat16")).all()

"""The launches are made once for all modules."""

from __future__ import annotations

from tests.tensorflow.launches import narrow, pair, three

__all__ = ["narrow", "pair", "three"]

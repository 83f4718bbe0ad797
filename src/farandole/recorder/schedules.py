"""Schedules, loss scalers, clipping, accumulation (facts of FD3xx)."""

from __future__ import annotations

"""FD3xx: learning rates, schedules, accumulation, clipping, precision."""

from __future__ import annotations

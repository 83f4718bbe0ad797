"""Which samples this worker trains on: loaders, samplers, hashes by epoch (facts of FD2xx)."""

from __future__ import annotations

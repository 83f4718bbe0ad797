"""FD2xx: which samples each worker trains on."""

from __future__ import annotations

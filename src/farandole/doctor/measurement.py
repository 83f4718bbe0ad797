"""FD4xx: metrics and evaluation."""

from __future__ import annotations

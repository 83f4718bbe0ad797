"""Metrics and evaluation: what was evaluated, what was printed (facts of FD4xx)."""

from __future__ import annotations

"""Collectives that a script calls itself, by file and line, and workers that wait in one."""

from __future__ import annotations

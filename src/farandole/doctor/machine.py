"""FD5xx: machine, launch and files."""

from __future__ import annotations

"""Files that a script writes, and the machine it runs on."""

from __future__ import annotations

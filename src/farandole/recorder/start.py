"""When this process started."""

from __future__ import annotations

import os
import time


def interpreter_began_s() -> float:
    """Return when this process started, on the monotonic clock."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        return ticks / os.sysconf("SC_CLK_TCK") - asleep_s
    except (OSError, ValueError, AttributeError):
        return time.monotonic()

"""How a rank waits for its peers: spin a little, yield a little, then sleep.

Pure spinning starves the peer that is waited for when ranks share cores; sleeping from the start
costs tens of microseconds where the peer is only two away.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

SPINS = 60
YIELDS = 300
SHORTEST_SLEEP_S = 20e-6
LONGEST_SLEEP_S = 500e-6

# With the default slack of 50 us a sleep of 20 us takes 70 us or more.
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000


class Backoff:
    """Counts fruitless looks at shared memory and pauses longer the more there were."""

    __slots__ = ("_looks", "_sleep_s", "_spins", "_yields")

    def __init__(self, *, crowded: bool = False) -> None:
        """Start afresh.

        Args:
            crowded: more ranks than cores: whoever spins keeps a peer from running.
        """
        self._spins = 2 if crowded else SPINS
        self._yields = self._spins + YIELDS
        self.reset()

    def reset(self) -> None:
        """Begin again with the shortest pause: something has moved."""
        self._looks = 0
        self._sleep_s = SHORTEST_SLEEP_S

    def pause(self) -> bool:
        """Pause once; return whether the wait has become long enough to look for dead peers."""
        self._looks += 1
        if self._looks < self._spins:
            return False
        if self._looks < self._yields:
            os.sched_yield()
            return False
        time.sleep(self._sleep_s)
        self._sleep_s = min(self._sleep_s * 1.5, LONGEST_SLEEP_S)
        return self._sleep_s >= LONGEST_SLEEP_S


def sharpen_sleep() -> None:
    """Let short sleeps of the calling thread be short (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)

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
# A network takes longer than all of these would; whoever looks all the time keeps the threads that
# serve it from running.
DISTANT_YIELDS = 2
DISTANT_SLEEP_S = 100e-6
DISTANT_LONGEST_SLEEP_S = 2e-3
SHORTEST_SLEEP_S = 20e-6
LONGEST_SLEEP_S = 500e-6

# With the default slack of 50 us a sleep of 20 us takes 70 us or more.
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000


class Backoff:
    """Counts fruitless looks at shared memory and pauses longer the more there were."""

    __slots__ = ("_distant", "_longest_s", "_looks", "_shortest_s", "_sleep_s", "_spins", "_yields")

    def __init__(self, *, crowded: bool = False, distant: bool = False) -> None:
        """Start afresh.

        Args:
            crowded: more ranks than cores: whoever spins keeps a peer from running.
            distant: what is waited for comes over a network.
        """
        self._spins = 2 if crowded or distant else SPINS
        self._yields = self._spins + (DISTANT_YIELDS if distant else YIELDS)
        self._shortest_s = DISTANT_SLEEP_S if distant else SHORTEST_SLEEP_S
        self._longest_s = DISTANT_LONGEST_SLEEP_S if distant else LONGEST_SLEEP_S
        self._distant = distant
        self._looks, self._sleep_s = 0, self._shortest_s

    def reset(self) -> None:
        """Begin again with a short pause: something has moved.

        Over a network the next thing takes about as long as the last, so that the pauses before it
        are not all gone through again.
        """
        self._looks = 0
        self._sleep_s = (
            max(self._shortest_s, self._sleep_s / 4) if self._distant else self._shortest_s
        )

    def pause(self) -> bool:
        """Pause once; return whether the wait has become long enough to look for dead peers."""
        self._looks += 1
        if self._looks < self._spins:
            return False
        if self._looks < self._yields:
            os.sched_yield()
            return False
        time.sleep(self._sleep_s)
        self._sleep_s = min(self._sleep_s * 1.5, self._longest_s)
        return self._sleep_s >= self._longest_s


def sharpen_sleep() -> None:
    """Let short sleeps of the calling thread be short (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)

"""Whether buckets are reduced while backward still runs: tried both ways, then decided.

Overlap needs somebody to do it: a core that no worker uses, or a GPU that does the computing. Where
all cores are taken the progress thread would only slow the training thread down.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

WARM_UP_STEPS = 3
BLOCK_STEPS = 5
BLOCKS = 4
"""Off, on, off, on: interleaved, so that drift does not decide."""

# What overlap must gain before a thread is kept busy for it.
_LEAST_GAIN = 0.02


class OverlapTrial:
    """Decides from step times; pure: the caller brings the clock and the other ranks' figures."""

    def __init__(self, setting: str, *, spare_cores: bool) -> None:
        """Begin.

        Args:
            setting: "on", "off" or "auto" (try both if there are spare cores).
            spare_cores: whether the host has more cores than workers.
        """
        self.on = setting == "on"
        self._deciding = setting == "auto" and spare_cores
        self._steps = 0
        self._last_s: float | None = None
        self._times_s: dict[bool, list[float]] = {False: [], True: []}

    @property
    def trying(self) -> bool:
        """Whether both ways are tried: on all ranks or on none, as they decide together."""
        return self._deciding

    def step(self, now_s: float) -> bool:
        """Take note of the end of a step; return whether it is time to decide together."""
        if not self._deciding:
            return False
        if self._last_s is not None and self._steps >= WARM_UP_STEPS:
            self._times_s[self.on].append(now_s - self._last_s)
        self._last_s = now_s
        self._steps += 1
        done = self._steps - WARM_UP_STEPS
        if done >= BLOCK_STEPS * BLOCKS:
            return True
        self.on = done >= 0 and (done // BLOCK_STEPS) % 2 == 1
        return False

    def stop(self) -> None:
        """End the trial without overlap: the ranks cannot decide on it together."""
        self.on = self.on and not self._deciding
        self._deciding = False

    def figures(self) -> tuple[float, float]:
        """Return my median step time without and with overlap."""
        return median(self._times_s[False]), median(self._times_s[True])

    def decide(self, everyone: Sequence[Sequence[float]]) -> None:
        """Settle it by the slowest rank's figures, the same on every rank."""
        off_s = max(off for off, _ in everyone)
        on_s = max(on for _, on in everyone)
        self.on = on_s < off_s * (1 - _LEAST_GAIN)
        self._deciding = False

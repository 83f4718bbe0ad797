"""What the slowest of N workers takes longer than a typical one, by chance alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from farandole.study.records import Floats

# A maximum of N draws is resampled from at least so many times N residuals.
_PER_DRAW = 10
# Fewer residuals than this say how wide they are, but nothing of their tail.
_FEWEST = 20
_TAIL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Residuals of single workers' computing: what each took beyond the others' mean, sorted."""

    residuals_s: Floats

    def slowest_s(self, workers: int) -> float:
        """Return how much longer the slowest of so many workers takes, in the mean.

        Up to a tenth of the number of residuals it is the expected maximum of as many draws among
        them. Beyond, it grows with the logarithm of the workers, as maxima with an exponential tail
        do, whose scale is the mean excess over the upper tenth.
        """
        number = len(self.residuals_s)
        if workers < 2 or number < 2:
            return 0.0
        spread_s = float(np.std(self.residuals_s))
        if number < _FEWEST:
            # Blom's approximation to the expected maximum of normal draws.
            return spread_s * NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25))
        most = max(2, number // _PER_DRAW)
        known_s = self._expected_maximum_s(min(workers, most))
        if workers <= most:
            return known_s
        start_s = np.quantile(self.residuals_s, _TAIL)
        excess_s = float(np.mean(self.residuals_s[self.residuals_s >= start_s] - start_s))
        return known_s + excess_s * math.log(workers / most)

    def _expected_maximum_s(self, workers: int) -> float:
        number = len(self.residuals_s)
        # Of N draws with replacement the largest is at most the i-th with probability (i/n)^N.
        at_most = (np.arange(number + 1) / number) ** workers
        largest_s = float(np.sum(self.residuals_s * np.diff(at_most)))
        return max(0.0, largest_s - float(np.mean(self.residuals_s)))


def jitter_of(computing_s: Floats) -> Jitter | None:
    """Take the residuals of ranks x steps of computing time; None with fewer than 2 ranks.

    What all ranks have in common in a step does not add up with their number: the mean over the
    ranks is taken away. That makes the rest too small by sqrt((N - 1) / N), which is put right.
    """
    if computing_s.ndim != 2 or len(computing_s) < 2:
        return None
    whole = computing_s[:, np.isfinite(computing_s).all(axis=0)]
    if not whole.size:
        return None
    ranks = len(whole)
    own = (whole - whole.mean(axis=0)) * math.sqrt(ranks / (ranks - 1))
    return Jitter(residuals_s=np.sort(own, axis=None))


NO_JITTER = Jitter(residuals_s=np.empty(0))
"""Where nobody measured any."""

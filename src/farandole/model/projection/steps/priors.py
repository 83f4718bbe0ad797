"""What is believed of a step's time before a row is seen, and what a stated link adds to that."""

from __future__ import annotations

import math

import numpy as np

from farandole.model.projection.records import LinkSpeed
from farandole.model.projection.steps import forms
from farandole.model.projection.steps.least_squares import Prior
from farandole.study.records import Floats

# Chosen once by fits that left a model out, and not per model. Each is (mean, sd) of a logarithm.
_JITTER = (math.log(0.04), 0.7)
"""What one standard deviation of a worker's time is, of computing."""
_INSIDE = (math.log(0.03), 2.0)
"""Gradients inside of a host, of a typical step."""
_GROWTH = (math.log(forms.GROWTH), 0.5)
_SLOWER_BETWEEN = (math.log(5.0), 1.5)
"""Between hosts, of inside of one."""
_MANY_HOSTS = (-0.15, 0.3)
"""Three hosts or more, of two: libraries choose other ways for two."""
_SHARPNESS = (math.log(2.0), 0.7)
_SHARING = (math.log(0.02), 1.5)
"""What two workers of a host compute slower than one alone: they share its memory and loaders."""
_BATCH = 0.1
"""How far computing strays from a straight line in the batch."""
_VAGUE = 3.0

# A link's rate is what is sold. NCCL and Gloo reach some half of it; where one connection may not
# have all of it, as in clouds, far less.
_REACHED = (math.log(0.55), 0.7)
# What GPUs of one host reach over PCIe; nothing better is known where bytes were not stated.
_INSIDE_BYTES_PER_S = (math.log(10e9), 0.9)


def make_prior(
    *,
    typical_s: float,
    typical_batch: float,
    num_knots: int,
    link: LinkSpeed | None = None,
    gradient_bytes: float | None = None,
) -> Prior:
    """Return what holds for any model, on the scale of this one.

    Args:
        typical_s: A middling step time among the rows.
        typical_batch: A middling batch.
        num_knots: Batches at which computing may deviate from a straight line.
        link: What connects hosts, where no row has measured it. Its rate counts here; its latency
            is no parameter (`forms.Shape`).
        gradient_bytes: What is averaged in each step; None when nobody knows.
    """
    beliefs = _Beliefs(forms.BATCHES + num_knots)
    beliefs.add({forms.FIXED: 1}, (math.log(0.3 * typical_s), _VAGUE))
    beliefs.add({forms.PER_SAMPLE: 1}, (math.log(0.7 * typical_s / typical_batch), _VAGUE))
    beliefs.add({forms.JITTER: 1}, _JITTER)
    beliefs.add({forms.INSIDE: 1}, (_INSIDE[0] + math.log(typical_s), _INSIDE[1]))
    beliefs.add({forms.INSIDE_GROWTH: 1}, _GROWTH)
    beliefs.add({forms.BETWEEN_GROWTH: 1}, _GROWTH)
    beliefs.add({forms.MANY_HOSTS: 1}, _MANY_HOSTS)
    beliefs.add({forms.SHARPNESS: 1}, _SHARPNESS)
    beliefs.add({forms.SHARING: 1}, _SHARING)
    for knot in range(num_knots):
        beliefs.add({forms.BATCHES + knot: 1}, (0.0, _BATCH))
    if link is None:
        beliefs.add({forms.BETWEEN: 1, forms.INSIDE: -1}, _SLOWER_BETWEEN)
    elif gradient_bytes is not None:
        seconds = math.log(gradient_bytes / link.bytes_per_s)
        beliefs.add({forms.BETWEEN: 1}, (seconds - _REACHED[0], _REACHED[1]))
    else:
        slower = _INSIDE_BYTES_PER_S[0] - math.log(link.bytes_per_s) - _REACHED[0]
        spread = math.hypot(_INSIDE_BYTES_PER_S[1], _REACHED[1])
        beliefs.add({forms.BETWEEN: 1, forms.INSIDE: -1}, (slower, spread))
    return beliefs.prior()


class _Beliefs:
    """A prior on its way."""

    def __init__(self, num_parameters: int) -> None:
        self._size = num_parameters
        self._lines: list[Floats] = []
        self._means: list[float] = []
        self._sds: list[float] = []

    def add(self, line: dict[int, float], belief: tuple[float, float]) -> None:
        row = np.zeros(self._size)
        for place, factor in line.items():
            row[place] = factor
        self._lines.append(row)
        self._means.append(belief[0])
        self._sds.append(belief[1])

    def prior(self) -> Prior:
        return Prior(
            lines=np.array(self._lines), mean=np.array(self._means), sd=np.array(self._sds)
        )

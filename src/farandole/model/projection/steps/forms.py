"""Forms of a step's time: computing, moving gradients, and what of one hides behind the other.

T = (1 - q) C + (q C ^ g + G ^ g) ^ (1/g) + J, with C = fixed + per sample x batch, the longer the
more workers share a host, G the time that gradients take by one of five laws, q the share of
computing behind which they can hide, g how well they do (1: not at all), and J what the slowest of
N workers takes longer than the average one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from farandole.model.projection.steps.least_squares import LogTimes
from farandole.study.records import Floats

Law = Literal["ring", "slow ring", "hierarchical", "crowded", "bus"]

# Places in a vector of parameters; all are logarithms. Deviations of single batches follow.
FIXED, PER_SAMPLE, JITTER = 0, 1, 2
INSIDE, INSIDE_GROWTH, BETWEEN, BETWEEN_GROWTH = 3, 4, 5, 6
MANY_HOSTS, SHARPNESS, SHARING = 7, 8, 9
BATCHES = 10

GROWTH = 0.05
"""What a unit of a law's growth adds, of passing all gradients once, where no row tells."""

_MOST_KNOTS = 12
_SHARPEST = 12.0
# One belief on growth holds for all laws: with this, each adds about as much at 64 workers.
_GENTLY = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to say what a step takes."""

    name: str
    law: Law
    hidden: float
    """The share of computing behind which gradients can hide: q."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What forms need to know of rows: one value per row."""

    workers: Floats
    hosts: Floats
    batch: Floats
    knots: Floats
    """How much of each known batch is in a row's: rows by knots."""
    latency_s: float = 0.0
    """Of a message between hosts, for all buckets together; 0 where only rows tell of a network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a step consists of, in seconds: sets of parameters by rows."""

    total: Floats
    compute: Floats
    gradients: Floats


def choose_knots(batches: Floats) -> Floats:
    """Return the logarithms of batches at which computing may deviate from a straight line."""
    logs = np.log(np.unique(batches))
    if len(logs) <= _MOST_KNOTS:
        return logs
    return np.quantile(logs, np.linspace(0, 1, _MOST_KNOTS))


def make_shape(
    workers: Floats, hosts: Floats, batch: Floats, knots: Floats, *, latency_s: float = 0.0
) -> Shape:
    """Describe rows to the forms."""
    logs = np.clip(np.log(batch), knots[0], knots[-1])
    places = np.arange(len(knots), dtype=np.float64)
    position = np.interp(logs, knots, places)
    shares = np.maximum(0.0, 1 - np.abs(position[:, None] - places[None, :]))
    return Shape(workers=workers, hosts=hosts, batch=batch, knots=shares, latency_s=latency_s)


def slowest(workers: Floats) -> Floats:
    """Return how many standard deviations the slowest of N lies above the mean (Blom)."""
    return np.asarray(ndtri((workers - 0.375) / (workers + 0.25)) * (workers > 1), dtype=np.float64)


def log_times(form: Form, shape: Shape) -> LogTimes:
    """Return the form as a function of its parameters alone."""
    return lambda parameters: np.log(parts(form, shape, parameters).total)


def parts(form: Form, shape: Shape, parameters: Floats) -> Parts:
    """Return what steps take, for each set of parameters."""

    def value(place: int) -> Floats:
        return np.asarray(np.exp(parameters[:, place])[:, None], dtype=np.float64)

    straight = value(FIXED) + value(PER_SAMPLE) * shape.batch
    local = np.ceil(shape.workers / shape.hosts)
    shared = 1 + value(SHARING) * (_bus(local) if form.law == "bus" else _ring(local))
    compute = straight * np.exp(parameters[:, BATCHES:] @ shape.knots.T) * shared
    gradients = _gradients(form.law, shape, value)
    sharpness = np.minimum(1 + value(SHARPNESS), _SHARPEST)
    hideable = form.hidden * compute
    longer, shorter = np.maximum(hideable, gradients), np.minimum(hideable, gradients)
    joined = longer * (1 + (shorter / longer) ** sharpness) ** (1 / sharpness)
    jitter = value(JITTER) * compute * slowest(shape.workers)
    return Parts(
        total=(1 - form.hidden) * compute + joined + jitter, compute=compute, gradients=gradients
    )


def _gradients(law: Law, shape: Shape, value: Callable[[int], Floats]) -> Floats:
    workers, hosts = shape.workers, shape.hosts
    many = np.where(hosts > 2, value(MANY_HOSTS), 1.0)
    inside, between = value(INSIDE), value(BETWEEN) * many
    inside_growth, between_growth = value(INSIDE_GROWTH), value(BETWEEN_GROWTH)
    # A stated latency is as uncertain as growth is: nobody counted the messages.
    waited = shape.latency_s * _messages(law, hosts) * between_growth / GROWTH
    if law in ("hierarchical", "crowded", "bus"):
        local = np.ceil(workers / hosts)
        # Crowded: what grows is not hops but congestion, with all who send at once.
        growth = 2 * np.sqrt(workers - 1) * (hosts > 1) if law == "crowded" else hosts - 1
        passed = _bus(local) if law == "bus" else _ring(local) + inside_growth * (local - 1)
        return np.asarray(
            inside * passed + between * (_ring(hosts) + between_growth * growth) + waited
        )
    growth = _GENTLY * (workers - 1) if law == "ring" else 3 * np.log2(workers)
    return np.asarray(
        np.where(
            hosts > 1,
            between * (_ring(workers) + between_growth * growth) + waited,
            inside * (_ring(workers) + inside_growth * growth),
        )
    )


def _messages(law: Law, hosts: Floats) -> Floats:
    """Return how many messages cross between hosts one after the other: around a ring or a tree."""
    return np.asarray(2 * np.log2(hosts) if law == "slow ring" else 2 * (hosts - 1))


def _ring(members: Floats) -> Floats:
    """Return how often each byte of the gradients passes a link of a ring."""
    return 2 * (members - 1) / members


def _bus(members: Floats) -> Floats:
    """Return what workers add up to on something that all of a host share: a bus, its memory."""
    return members - 1

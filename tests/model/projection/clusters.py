"""Made-up clusters whose step times are known: buckets played one by one, then noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from farandole.model.projection.steps import StepRow, slowest

_BUCKET_BYTES = 25e6
_JITTER = 0.02


class Cluster(NamedTuple):
    """Hosts, what is in them and between them."""

    per_host: int
    inside_bytes_per_s: float
    between_bytes_per_s: float
    latency_s: float = 30e-6
    hierarchical: bool = True
    congestion: float = 0.05
    """What each doubling of hosts takes from the network."""


class Network(NamedTuple):
    """What is trained."""

    gradient_bytes: float
    fixed_s: float
    per_sample_s: float
    batches: tuple[int, ...]


ETHERNET_100 = Cluster(8, 10e9, 10e9)
ETHERNET_10 = Cluster(4, 8e9, 1.1e9, hierarchical=False)
INFINIBAND = Cluster(8, 150e9, 20e9, latency_s=8e-6, congestion=0.03)
TINY = Network(2e6, 0.01, 2e-4, (32, 128, 512))
RESNET = Network(1e8, 0.03, 4.5e-3, (16, 32, 64, 128))
LARGE = Network(1.4e9, 0.1, 0.4, (1, 2, 4))


def step_s(cluster: Cluster, network: Network, workers: int, hosts: int, batch: int) -> float:
    """Return what a step takes, without noise."""
    compute = network.fixed_s + network.per_sample_s * batch
    backward = 0.62 * compute
    buckets = math.ceil(network.gradient_bytes / _BUCKET_BYTES)
    each = _allreduce_s(cluster, workers, hosts, network.gradient_bytes / buckets)
    end = 0.0
    for number in range(buckets):
        end = max(end, backward * (number + 1) / buckets) + each
    late = 1 + _JITTER * float(slowest(np.array([float(workers)]))[0])
    return (compute - backward + max(backward, end)) * late


def measure(
    cluster: Cluster,
    network: Network,
    *,
    seed: int = 0,
    noise: float = 0.03,
    workers: Sequence[int] = (1, 2, 3, 4, 8, 16, 32, 64),
) -> list[StepRow]:
    """Return rows as somebody would have measured them."""
    random = np.random.default_rng(seed)
    rows = []
    for count in workers:
        for hosts in (1, 2, 3, 4, 8, 16):
            if not hosts <= count <= hosts * cluster.per_host:
                continue
            shared = random.normal(0.0, noise) if hosts > 1 else 0.0
            for batch in network.batches:
                seconds = step_s(cluster, network, count, hosts, batch)
                seconds *= math.exp(shared + random.normal(0.0, noise))
                rows.append(StepRow(workers=count, hosts=hosts, batch=batch, step_s=seconds))
    return rows


def _allreduce_s(cluster: Cluster, workers: int, hosts: int, nbytes: float) -> float:
    if workers == 1:
        return 0.0
    inside = cluster.inside_bytes_per_s
    if hosts == 1:
        return workers * cluster.latency_s / 3 + _ring(workers) * nbytes / inside
    between = cluster.between_bytes_per_s / (1 + cluster.congestion * math.log2(hosts))
    latency = 2 * hosts * cluster.latency_s
    if not cluster.hierarchical:
        return latency + _ring(workers) * nbytes / between
    local = math.ceil(workers / hosts)
    return latency + _ring(local) * nbytes / inside + _ring(hosts) * nbytes / between


def _ring(members: int) -> float:
    return 2 * (members - 1) / members

"""Score projections where the truth is known: `python tools/score_projections.py [FILE.csv ...]`.

Without tables of yours it makes some up: clusters whose steps are played bucket by bucket, and
servers with up to 8 or 16 GPUs, the largest count from two or three smaller ones. Printed are mean
errors beside those of the simplest laws, the share inside of the 90 % intervals, and the same by
distance. That planted laws are inside is a test (tests/model/projection/test_steps.py).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from farandole.model.projection.backtest import FileScore, Split, backtest
from farandole.model.projection.steps import StepRow
from farandole.model.projection.tables import StepTrace, read_trace

_Groups = dict[tuple[str, str], tuple[StepRow, ...]]
# Workers per host, bytes/s inside of and between hosts, noise, whether workers share a bus.
_CLUSTERS = {
    "T4-like: Ethernet, 4 per host": (4, 8e9, 1e9, 0.03, False),
    "DGX-like: InfiniBand, 8 per host": (8, 1e11, 2e10, 0.03, False),
    "RTX-like: PCIe, 8 per host": (8, 8e9, 5e9, 0.04, False),
    "Azure-like: shared bus, 8 per host": (8, 6e9, 2e9, 0.07, True),
}
# Mean costs of a ring, a tree, each GPU, each pair of GPUs, and of a second switch, of computing.
_SERVERS = {
    "servers of all kinds": (0.06, 0.02, 0.012, 0.0, 0.04),
    "servers that share a bus": (0.03, 0.02, 0.03, 0.003, 0.1),
    "servers with NVLink": (0.05, 0.0, 0.002, 0.0, 0.0),
}


def make_cluster(
    seed: int, per_host: int, inside: float, between: float, noise: float, bus: bool
) -> _Groups:
    """Return tables of four models on one cluster, as Pollux and Sia measured theirs."""
    random = np.random.default_rng(seed)
    groups = {}
    for model in range(4):
        gradient = 10 ** random.uniform(7, 9)  # bytes
        compute = 10 ** random.uniform(-1.3, 0)  # seconds of the middle batch
        loader = random.uniform(0.02, 0.15) if bus else random.uniform(0, 0.01)
        rows = []
        for workers, hosts in _placements(per_host):
            local = math.ceil(workers / hosts)
            shared = random.normal(0, noise)
            for batch in (4, 8, 12, 16, 24, 32):
                own = compute * (0.25 + 0.75 * batch / 16) * (1 + loader * (local - 1))
                near = 2 * (local - 1) / local if not bus else local - 1
                moved = gradient * (near / inside + 2 * (hosts - 1) / hosts / between)
                moved += 60e-6 * (workers - 1) * gradient / 25e6
                longer, shorter = max(0.66 * own, moved), min(0.66 * own, moved)
                seconds = 0.34 * own + (longer**3 + shorter**3) ** (1 / 3)
                seconds *= math.exp(shared + random.normal(0, noise))
                rows.append(StepRow(workers=workers, hosts=hosts, batch=batch, step_s=seconds))
        groups[f"made-up {seed}", f"model {model}"] = tuple(rows)
    return groups


def _placements(per_host: int) -> Iterator[tuple[int, int]]:
    for workers in (1, 2, 3, 4, 6, 8, 12, 16, 32, 64):
        for hosts in {math.ceil(workers / per_host), min(workers, 16), math.ceil(workers / 2)}:
            if workers <= hosts * per_host and hosts <= 16:
                yield workers, hosts


def make_servers(counts: tuple[int, ...], means: tuple[float, ...]) -> _Groups:
    """Return tables of 120 servers with so many GPUs, and with all of their GPUs."""
    random = np.random.default_rng(1)
    groups: _Groups = {}
    for number in range(120):
        ring, log, per_worker, per_pair, jump = random.exponential(means)
        most = 8 if random.random() < 0.7 else 16
        jump *= random.random() < 0.4
        rows = []
        for n in (*counts, most):
            cost = ring * 2 * (n - 1) / n + log * math.log2(n) + jump * (n > 4)
            cost += (per_worker + per_pair * n) * (n - 1)
            seconds = 0.1 * (1 + cost) * math.exp(random.normal(0, 0.012))
            rows.append(StepRow(workers=n, hosts=1, batch=64, step_s=seconds))
        groups["servers", f"table {number}"] = tuple(rows)
    return groups


def show(name: str, found: FileScore) -> None:
    """Print the errors of a backtest, of all rows and by distance."""

    def mean(pairs: Iterator[tuple[str, float]]) -> str:
        by_group: dict[str, list[float]] = {}
        for group, error in pairs:
            by_group.setdefault(group, []).append(abs(error))
        return f"{100 * fmean(map(fmean, by_group.values())):5.1f} %"

    rows = found.rows
    own = mean((row.group, row.projected.value / row.measured - 1) for row in rows)
    others = ", ".join(
        f"{law} {mean((row.group, row.baselines[law] / row.measured - 1) for row in rows)}"
        for law in rows[0].baselines
    )
    inside = fmean(row.covered for row in rows)
    width = fmean(row.log_width for row in rows) / 2
    print(f"{name}: {own}, {inside:.0%} inside, half width {width:.2f}; {others}")
    for key in dict.fromkeys(row.key for row in rows):
        alike = [row for row in rows if row.key == key]
        error = mean((row.group, row.projected.value / row.measured - 1) for row in alike)
        bias = fmean(row.projected.value / row.measured - 1 for row in alike)
        inside = fmean(row.covered for row in alike)
        print(f"    {key:>4}: {error}, bias {bias:+.0%}, {inside:.0%} of {len(alike)} inside")


def main() -> None:
    """Score the tables that the command line names; without any, those made up."""
    traces = {name: read_trace(Path(name)) for name in sys.argv[1:]}
    if not traces:
        for name, about in _CLUSTERS.items():
            groups = make_cluster(0, *about) | make_cluster(1, *about)
            traces[name] = StepTrace(groups=groups)
        for name, means in _SERVERS.items():
            for counts in ((1, 4), (1, 2, 4)):
                groups = make_servers(counts, means)
                traces[f"{name}, {len(counts)} counts"] = StepTrace(groups=groups)
    for name, trace in traces.items():
        show(name, backtest(trace, Split()))


if __name__ == "__main__":
    main()

"""Score projections where the truth is known: planted laws, made-up clusters, public tables.

python tools/score_projections.py [laws] [clusters] [servers] [FILE.csv ...]

`laws`: tables of a known law with 2 % noise, imported and projected as a user would (issue 28).
`clusters`: backtests of made-up clusters whose steps are played bucket by bucket.
`servers`: one machine with up to 8 or 16 GPUs, the largest count from two or three smaller ones.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from farandole.model.analyse import analyse
from farandole.model.projection.advice import project
from farandole.model.projection.backtest import FileScore, Split, backtest
from farandole.model.projection.question import Question, parse_link
from farandole.model.projection.steps import StepRow
from farandole.model.projection.tables import StepTrace, read_trace
from farandole.study.import_table import import_table

Law = Callable[[int], float]
_SEEDS = 6


def _serial(n: int) -> float:
    return 4.0 + 40.0 / n + 3.0 * (n - 1) / n


def _ring_epoch(n: int) -> float:
    """Return the epoch of a weak-scaling ring step: 1 + 0.3 x 2 (N - 1) / N, over N."""
    return 40.0 * (1 + 0.3 * 2 * (n - 1) / n) / n


# Name, law, largest measured count, hosts column, --link, workers per host.
_LAWS: list[tuple[str, Law, int, bool, str | None, int | None]] = [
    ("serial, one host, 1-8", _serial, 8, False, None, 64),
    ("serial, hosts column, 1-8", _serial, 8, True, None, None),
    ("ring, one host, 1-8", _ring_epoch, 8, False, None, 64),
    ("ring, hosts column, 1-8", _ring_epoch, 8, True, None, None),
    ("serial, --link 100Gbit, 1-8", _serial, 8, False, "100Gbit", None),
    ("serial, --link 100Gbit, 1-4", _serial, 4, False, "100Gbit", None),
]


def score_laws() -> None:
    """Print how often the truth lies inside at 16 and 64 workers, and the bias at 64."""
    for batch_columns in ("", "batch", "global"):
        print(f"laws, table with epoch_s and {batch_columns or 'no'} batch (2 % noise, 6 seeds)")
        for name, law, most, hosts, link, per_host in _LAWS:
            if batch_columns == "global" and law is _ring_epoch:
                continue  # of a fixed global batch, gradients do not shrink with the batch
            inside, bias, words, widths = {16: 0, 64: 0}, [], set(), []
            for seed in range(_SEEDS):
                rows = _project_law(law, most, hosts, link, per_host, batch_columns, seed)
                for n, (value, low, high, indicative) in rows.items():
                    inside[n] += low <= law(n) <= high
                    if n == 64:
                        bias.append(value / law(n) - 1)
                        words.add("indicative" if indicative else "")
                        widths.append(math.log(high / low) / 2)
            shown = f"{inside[16]} of 6, {inside[64]} of 6, bias {fmean(bias):+.0%}"
            print(f"  {name:28} {shown}, half width {fmean(widths):.2f} {' '.join(words)}")


def _project_law(
    law: Law, most: int, hosts: bool, link: str | None, per_host: int | None, batch: str, seed: int
) -> dict[int, tuple[float, float, float, bool]]:
    random = np.random.default_rng(seed)
    counts = [n for n in (1, 2, 4, 8) if n <= most]
    extra = {"": "", "batch": ",batch,dataset_size", "global": ",batch,dataset_size"}[batch]
    lines = ["workers," + ("hosts," if hosts else "") + "epoch_s" + extra]
    for n in counts:
        seconds = law(n) * math.exp(random.normal(0, 0.02))
        tail = {"": "", "batch": ",32,64000", "global": f",{512 // n},64000"}[batch]
        lines.append(f"{n}," + (f"{n}," if hosts else "") + f"{seconds:.6g}" + tail)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.csv")
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")
        study, _ = import_table(table, Path(folder, "study"), label="law")
        links = (parse_link(link),) if link else ()
        question = Question(workers=(16, 64), links=links, per_host=per_host)
        found = project(study, analyse(study), question)
    return {
        row.workers: (row.epoch_s.value, row.epoch_s.low, row.epoch_s.high, row.epoch_s.indicative)
        for row in found.rows
        if not row.measured and row.epoch_s is not None
    }


def _made_up(
    seed: int, *, per_host: int, inside: float, between: float, noise: float, bus: bool
) -> dict[tuple[str, str], tuple[StepRow, ...]]:
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
        groups["made-up", f"model {model}"] = tuple(rows)
    return groups


def _placements(per_host: int) -> Iterator[tuple[int, int]]:
    for workers in (1, 2, 3, 4, 6, 8, 12, 16, 32, 64):
        for hosts in {math.ceil(workers / per_host), min(workers, 16), math.ceil(workers / 2)}:
            if workers <= hosts * per_host and hosts <= 16:
                yield workers, hosts


_CLUSTERS = {
    "Ethernet, 4 per host": {"per_host": 4, "inside": 8e9, "between": 1e9, "noise": 0.03},
    "InfiniBand, 8 per host": {"per_host": 8, "inside": 1e11, "between": 2e10, "noise": 0.03},
    "PCIe, 8 per host": {"per_host": 8, "inside": 8e9, "between": 5e9, "noise": 0.04},
    "shared bus, 8 per host": {"per_host": 8, "inside": 6e9, "between": 2e9, "noise": 0.07},
}


def score_clusters() -> None:
    """Print errors of backtests on made-up clusters, beside the simplest laws."""
    for name, about in _CLUSTERS.items():
        groups: dict[tuple[str, str], tuple[StepRow, ...]] = {}
        for seed in range(2):
            made = _made_up(seed, bus="bus" in name, **about)  # type: ignore[arg-type]
            groups |= {(f"{key[0]} {seed}", key[1]): rows for key, rows in made.items()}
        _show(name, backtest(StepTrace(groups=groups), Split()))


def score_servers() -> None:
    """Print errors of the largest count of made-up GPU servers, from two and from three counts."""
    random = np.random.default_rng(1)
    for counts in ((1, 4), (1, 2, 4)):
        groups = {}
        for number in range(120):
            ring, log, per_worker = random.exponential([0.06, 0.02, 0.012])
            most = 8 if random.random() < 0.7 else 16
            jump = random.exponential(0.04) if random.random() < 0.4 else 0.0
            rows = []
            for n in (*counts, most):
                cost = ring * 2 * (n - 1) / n + log * math.log2(n) + per_worker * (n - 1)
                seconds = 0.1 * (1 + cost + jump * (n > 4)) * math.exp(random.normal(0, 0.012))
                rows.append(StepRow(workers=n, hosts=1, batch=64, step_s=seconds))
            groups["servers", f"table {number}"] = tuple(rows)
        _show(f"servers, {len(counts)} counts", backtest(StepTrace(groups=groups), Split()))


def _show(name: str, found: FileScore) -> None:
    def mean(pairs: Iterator[tuple[str, float]]) -> str:
        by_group: dict[str, list[float]] = {}
        for group, error in pairs:
            by_group.setdefault(group, []).append(abs(error))
        return f"{100 * fmean(map(fmean, by_group.values())):5.1f} %"

    rows = found.rows
    own = mean((row.group, row.projected.value / row.measured - 1) for row in rows)
    others = {
        law: mean((row.group, row.baselines[law] / row.measured - 1) for row in rows)
        for law in rows[0].baselines
    }
    inside = fmean(row.covered for row in rows)
    width = fmean(row.log_width for row in rows) / 2
    shown = ", ".join(f"{law} {error}" for law, error in others.items())
    print(f"{name}: {own}, {inside:.0%} inside, half width {width:.2f}; {shown}")
    for key in dict.fromkeys(row.key for row in rows):
        alike = [row for row in rows if row.key == key]
        error = mean((row.group, row.projected.value / row.measured - 1) for row in alike)
        bias = fmean(row.projected.value / row.measured - 1 for row in alike)
        inside = fmean(row.covered for row in alike)
        print(f"    {key:>4}: {error}, bias {bias:+.0%}, {inside:.0%} of {len(alike)} inside")


def main() -> None:
    """Score what the command line names; everything made up by default."""
    sections = {"laws": score_laws, "clusters": score_clusters, "servers": score_servers}
    for name in sys.argv[1:] or sections:
        if name in sections:
            sections[name]()
        else:
            _show(name, backtest(read_trace(Path(name)), Split()))


if __name__ == "__main__":
    main()

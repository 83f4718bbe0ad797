"""Small studies whose every figure follows from a formula, for tests of the report.

Throughput follows Amdahl's law with a serial part, intervals are 2 % to either side, accuracy rises
as 1 - exp(-epoch). `Words` gives every string that a user could have chosen, so that a test can
make all of them hostile at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from farandole.model.accuracy import MetricCurve, MetricPoint, MetricRow
from farandole.model.analyse import Comparison, ComparisonRow, ScalingInfo
from farandole.model.answer import Answer
from farandole.model.communication import Communication, Contention, LinkPoint
from farandole.model.curves import (
    BatchPoint,
    BatchSweep,
    Curve,
    CurvePoint,
    LawFit,
    SingleProcess,
    SplitPoint,
    SplitTable,
)
from farandole.model.jobs import Cost, JobTime
from farandole.model.measured import LaunchRow
from farandole.model.rows import CellRow
from farandole.model.split import StepParts, StepSplit
from farandole.model.statistics import Estimate
from farandole.model.utilisation import UtilisationRow, UtilisationSeries
from farandole.model.verdicts import Verdict
from farandole.study.records import Cell

SERIAL = 0.08
SINGLE = 1234.5
"""Throughput of one worker, samples/s."""
BATCH = 64
GRADIENT_BYTES = 44_695_848
PEAK = 9.9e9
TIMES = tuple(0.5 * (index + 1) for index in range(40))
HEADLINE = "Use 2 workers: 1.85x faster (1.81 to 1.89)."


ODD = (
    "<script>window.hacked=1</script>",
    '"]; window.hacked=1; //',
    "datum['x']",
    "{{constructor.constructor('window.hacked=1')()}}",
    "</script><img src=x onerror=window.hacked=1>",
    "a.b[0]\\'\"",
    "שלום \u202e עולם",
    "NaN",
    "x" * 3000,
    "url(javascript:window.hacked=1)",
)
"""Strings that would be markup, script or an expression if anything took them for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The strings that come from users."""

    label: str = "digits"
    param: tuple[str, str] = ("model", "resnet18")
    metric: str = "val_accuracy"
    loss: str = "train_loss"
    command: tuple[str, ...] = ("python", "train.py", "--batch-size", "{batch}")
    reason: str = "out of memory: the worker's limit is 2 GB"
    output: str = "rank 1: Killed"
    host: str = "tangram"


def near(value: float, share: float = 0.02) -> Estimate:
    """Return a value with an interval of this share to either side."""
    return Estimate(value=value, low=value * (1 - share), high=value * (1 + share))


def speedup(workers: int) -> float:
    """Return Amdahl's speedup."""
    return 1 / (SERIAL + (1 - SERIAL) / workers)


def cell(workers: int, *, batch: int = BATCH, threads: int = 1, words: Words | None = None) -> Cell:
    """Return a cell on the CPU."""
    params = (words or Words()).param
    return Cell(workers=workers, threads=threads, batch=batch, params=(params,))


def label(one: Cell) -> str:
    """Return a cell in words, with its parameter's name and value."""
    name, value = one.params[0]
    plural = "s" * (one.workers != 1)
    return f"{one.workers} worker{plural}, batch {one.batch}, {name}={value}"


def curve(
    counts: tuple[int, ...] = (1, 2, 4),
    *,
    words: Words | None = None,
    batch: int = BATCH,
    main: bool = True,
    void: bool = False,
    launches: int = 3,
    scaling: str = "weak",
) -> Curve:
    """Return a curve that follows Amdahl's law."""
    words = words or Words()
    points = []
    for workers in counts:
        gained = speedup(workers)
        one = launches == 1
        ratio = Estimate(value=gained, low=None, high=None) if one else near(gained)
        if workers == counts[0]:
            ratio = Estimate(value=1.0, low=1.0, high=1.0)
        share = gained / workers
        points.append(
            CurvePoint(
                cell=cell(workers, batch=batch, words=words),
                workers=workers,
                batch=batch,
                global_batch=batch * workers,
                throughput=Estimate(value=SINGLE * gained, low=None, high=None)
                if one
                else near(SINGLE * gained),
                speedup=None if void else ratio,
                efficiency=None if void else near(share) if not one else ratio,
                ideal_throughput=SINGLE * workers,
                ideal_speedup=float(workers),
                step_s=near(batch / SINGLE * workers / gained),
                launches=launches,
                valid=not void,
                why="the workers did not train together" if void else "",
            )
        )
    return Curve(
        scaling="strong" if scaling == "strong" else "weak",
        group="",
        label=f"{words.param[1]}, batch {batch}",
        batch=batch,
        unit="samples/s",
        baseline_workers=counts[0],
        points=tuple(points),
        amdahl=LawFit(
            law="amdahl",
            serial_fraction=near(SERIAL),
            limit=1 / SERIAL,
            sentence=f"Amdahl: {SERIAL:.0%} of a step does not get faster.",
        ),
        gustafson=None,
        best_workers=counts[-1],
        sentence=f"Amdahl: {SERIAL:.0%} of a step does not get faster.",
        main=main,
    )


def made(kind: Any, one: Cell, **given: Any) -> Any:
    """Return a record of a cell; what is not given was not measured."""
    given = {"cell": one, "label": label(one)} | given
    return kind(**{item.name: given.get(item.name) for item in fields(kind)})


def full_row(one: Cell, words: Words) -> CellRow:
    """Return a cell's row with everything that can be known of it."""
    workers, gained = one.workers, speedup(one.workers)
    step_s, epoch_s, several = BATCH / SINGLE * workers / gained, 40.0 / gained, workers > 1
    kinds = {"gradients": GRADIENT_BYTES * workers, "buffers": 40_000 * workers, "control": 512}
    measured_s = 2 * (workers - 1) / workers * GRADIENT_BYTES / (PEAK / 2)
    shares = {"data_s": 0.05, "compute_s": 0.75, "optimizer_s": 0.08}
    shares |= {"transfer_s": 0.09, "waiting_s": 0.03, "exposed_s": 0.12} if several else {}
    parts = dict.fromkeys(item.name for item in fields(StepParts))
    parts |= {key: share * step_s for key, share in shares.items()}
    slowest = {"slowest_rank": workers - 1, "slowest_share": 0.61}
    slower = 1 + 0.1 * (workers - 1)
    return cell_row(
        one,
        split=made(
            StepSplit,
            one,
            step_s=step_s,
            compute_by_rank_s=tuple((rank, 0.75 * step_s) for rank in range(workers)),
            by_rank=tuple((rank, StepParts(**parts)) for rank in range(workers)),
            **parts,
            **({"hidden_s": 0.04 * step_s} | slowest if several else {}),
        ),
        # Half the peak of the link.
        communication=made(
            Communication,
            one,
            gradient_bytes=GRADIENT_BYTES,
            measured_s=measured_s,
            exposed_s=0.8 * measured_s,
            derived_s=1.2 * measured_s,
            contention_s=0.3 * measured_s,
            derived_epoch_s=100 * measured_s,
            bus_bytes_per_s=PEAK / 2,
            derived_bus_bytes_per_s=PEAK / 2.4,
            peak_bytes_per_s=PEAK,
            utilisation=0.5,
            bytes_by_kind=kinds,
            total_bytes_by_kind={kind: 100 * count for kind, count in kinds.items()},
        )
        if several
        else None,
        # A tenth of a step for each other worker, and loading as much.
        contention=made(
            Contention,
            one,
            computing_alone_s=0.040,
            computing_together_s=0.040 * slower,
            update_alone_s=0.010,
            update_together_s=0.010 * slower,
            contention_s=0.050 * (slower - 1),
            slowdown=slower,
            loaded_alone_per_s=4000.0,
            loaded_together_per_s=4000.0 / slower,
            trained_per_s=SINGLE * gained / workers,
            why_not="",
        )
        if several
        else None,
        utilisation=made(
            UtilisationRow,
            one,
            cpu=0.93,
            memory_bytes=1.2e9,
            by_rank=tuple((rank, 0.93, None, 1.2e9) for rank in range(workers)),
        ),
        utilisation_series=tuple(
            made(
                UtilisationSeries,
                one,
                launch=f"0001-w{workers}-r0",
                rank=rank,
                time_s=TIMES,
                cpu=tuple(0.85 + 0.1 * math.sin(time + rank) for time in TIMES),
                gpu=(None,) * len(TIMES),
                memory_bytes=(1e9,) * len(TIMES),
            )
            for rank in range(workers)
        ),
        job=made(
            JobTime,
            one,
            job_s=near(10 * epoch_s + 30),
            epochs=10.0,
            epoch_s=near(epoch_s),
            epoch_measured=True,
            steps_per_epoch=round(50_000 / (BATCH * workers)),
            startup_s=6.0,
            between_s=24.0,
            fixed_s=30.0,
            fixed_share=30 / (10 * epoch_s + 30),
        ),
        metrics=(metric_row(workers, words),),
        metric_curves=(metric_curve(one, words.metric), metric_curve(one, words.loss, falls=True)),
        cost=made(
            Cost,
            one,
            price_per_worker_hour=2.5,
            per_epoch=0.03,
            job=0.3,
            to_target=0.15,
            per_million_samples=0.6,
        ),
    )


def batch_sweep(words: Words) -> BatchSweep:
    """Return throughput that saturates with the batch; the largest batch failed."""
    points = [
        made(
            BatchPoint,
            cell(1, batch=batch, words=words),
            batch=batch,
            throughput=near(2000 * batch / (batch + 40)) if batch < 512 else None,
            step_s=near((batch + 40) / 2000) if batch < 512 else None,
            cpu=0.9 if batch < 512 else None,
            failed="" if batch < 512 else words.reason,
        )
        for batch in (16, 32, 64, 128, 256, 512)
    ]
    return BatchSweep(
        group=words.param[1],
        label=f"{words.param[1]}, 1 worker",
        workers=1,
        unit="samples/s",
        points=tuple(points),
        best=128,
        sentence="Batch 128 is the smallest that is not clearly slower than the fastest.",
    )


def split_table(words: Words) -> SplitTable:
    """Return all splits of eight cores, the last one fastest."""
    points = [
        SplitPoint(
            cell=cell(workers, threads=threads, words=words),
            workers=workers,
            threads=threads,
            throughput=near(900.0 * workers**0.6 * threads**0.5),
            today=workers == 1,
        )
        for workers, threads in ((1, 8), (2, 4), (4, 2), (8, 1))
    ]
    return SplitTable(
        group=words.param[1],
        label=words.param[1],
        unit="samples/s",
        points=tuple(points),
        best=(8, 1),
        sentence="8 processes with 1 thread each are fastest.",
    )


def metric_curve(one: Cell, metric: str, *, falls: bool = False) -> MetricCurve:
    """Return a metric that rises, or a loss that falls, with the epochs."""
    epoch_s = 40.0 / speedup(one.workers)
    rises = [0.9 * (1 - math.exp(-epoch / (1.5 + 0.3 * one.workers))) for epoch in range(1, 11)]
    points = [
        MetricPoint(
            epoch=float(epoch),
            value=near(2.3 * (1 - rise) if falls else rise, 0.01),
            time_s=6 + epoch * epoch_s,
            seeds=3,
        )
        for epoch, rise in enumerate(rises, start=1)
    ]
    return MetricCurve(cell=one, label=label(one), metric=metric, points=tuple(points))


def metric_row(workers: int, words: Words | None = None) -> MetricRow:
    """Return the metric at the end: the same on all counts."""
    words = words or Words()
    epoch_s, several = 40.0 / speedup(workers), workers > 1
    found: MetricRow = made(
        MetricRow,
        cell(workers, words=words),
        metric=words.metric,
        higher_is_better=True,
        final=near(0.9 - 0.001 * workers, 0.003),
        seeds=3,
        diverged=0,
        difference=Estimate(value=-0.001 * workers, low=-0.004, high=0.003) if several else None,
        margin=0.005,
        verdict="same" if several else None,
        stable_epoch=4.0 + workers,
        stable_s=(4.0 + workers) * epoch_s,
        censored=0,
        target=0.85,
        target_epoch=5.0,
        target_s=5 * epoch_s,
        target_reached=3,
    )
    return found


def cell_row(one: Cell, *, failed: str = "", launches: int = 3, **parts: Any) -> CellRow:
    """Return a cell's row."""
    gained = speedup(one.workers)
    return CellRow(
        cell=one,
        label=label(one),
        launches=0 if failed else launches,
        attempts=launches,
        step_s=None if failed else near(BATCH / SINGLE * one.workers / gained),
        throughput=None if failed else near(SINGLE * gained),
        unit="samples/s",
        failed=failed,
        void_for_speed="",
        gradient_bytes=GRADIENT_BYTES,
        parameters=11_173_962,
        steps_per_epoch=round(50_000 / (BATCH * one.workers)),
        measured=None,  # reports do not look at the launches behind a row
        **parts,
    )


def launch_row(one: Cell, repeat: int, *, why: str = "", outlier: bool = False) -> LaunchRow:
    """Return a launch's row."""
    return LaunchRow(
        id=f"{repeat:04d}-w{one.workers}-r{repeat}",
        cell=one,
        label=label(one),
        purpose="speed",
        outcome="out_of_memory" if why else "stopped",
        repeat=repeat,
        seed=None,
        kept=not why,
        why=why,
        outlier=outlier,
        steps=0 if why else 128,
        counted_steps=0 if why else 120,
        warmup_steps=0 if why else 8,
        step_s=None if why else 0.05,
        throughput=None if why else SINGLE,
        unit="samples/s",
        wall_s=9.5,
        started="2026-11-15T22:00:00Z",
    )


def answer(*, void: str | None = None) -> Answer:
    """Return the answer "2 workers", or a void one."""
    gained = near(speedup(2))
    assert gained.low is not None
    assert gained.high is not None
    return Answer(
        workers=None if void else 2,
        baseline_workers=1,
        speedup=None if void else gained.value,
        interval=None if void else (gained.low, gained.high),
        efficiency=None if void else gained.value / 2,
        accuracy="not_measured" if void else "same",
        limited_by="unknown" if void else "compute",
        void=void,
        next="Wrap the optimizer." if void else "farandole project DIR -np 8",
        headline=void or HEADLINE,
        sentences=() if void else ("Today, one process with all cores: 1.21x slower.",),
    )


def study(
    counts: tuple[int, ...] = (1, 2, 4), *, words: Words | None = None, void: str | None = None
) -> ScalingInfo:
    """Return a study in which everything was measured."""
    words = words or Words()
    cells = [cell(workers, words=words) for workers in counts]
    several = [workers for workers in counts if workers > 1]
    failed = cell(counts[-1], batch=512, words=words)
    rows = [launch_row(one, repeat) for repeat in range(3) for one in cells]
    rows.append(launch_row(failed, 0, why=f"{words.reason}. Last output: {words.output}"))
    rows.append(launch_row(cells[0], 3, outlier=True))
    return ScalingInfo(
        label=words.label,
        answer=answer(void=void),
        curves=(curve(counts, words=words, void=void is not None),),
        today=SingleProcess(
            cell=replace(cells[0], threads=4, today=True),
            throughput=near(SINGLE * 1.5),
            unit="samples/s",
            gain=near(speedup(2) / 1.5),
            sentence="Today, one process with all cores: 1.21x slower.",
        ),
        link=tuple(
            LinkPoint(
                workers=workers,
                bytes=4**power * 1024,
                seconds=1e-4 + 4**power * 1024 / PEAK,
                bus_bytes_per_s=PEAK / (1 + 1e-4 * PEAK / (4**power * 1024)),
                utilisation=0.5,
            )
            for workers in several
            for power in range(1, 9)
        ),
        batch_sweeps=(batch_sweep(words),),
        split_tables=(split_table(words),),
        main_metric=words.metric,
        rows=(
            *(full_row(one, words) for one in cells),
            cell_row(failed, failed=words.reason),
        ),
        launches=tuple(rows),
        verdicts=(
            Verdict(
                kind="communication_bound",
                severity="warn",
                sentence=f"4 workers spend 12 % of a step on communication ({words.param[1]}).",
                action="Use a larger batch.",
                evidence={"exposed_share": 0.12, words.param[0]: words.param[1]},
                labels=(label(cells[-1]),),
            ),
            Verdict(
                kind="linear",
                severity="good",
                sentence="2 workers are close to ideal.",
                action="",
                evidence={"efficiency": 0.92},
            ),
        ),
        voids=(),
        notes=(f"Data wait of {words.param[1]} was not measured.",),
        margins={"speed": 0.03, words.metric: 0.005},
        machine={
            "host": words.host,
            "cpu": "Example CPU @ 3 GHz",
            "physical_cores": 4,
            "cores": 8,
            "memory_bytes": 16_000_000_000,
            "gpus": [],
            "system": "Linux 6.1",
            "versions": {"python": "3.11.2", "torch": "2.13.0"},
            "git": {"commit": "0123abc", "dirty": False},
        },
        complete=True,
        command=words.command,
        spec={
            "workers": list(counts),
            "threads": [1],
            "batches": [BATCH],
            "params": [[words.param[0], [words.param[1]]]],
            "repeats": 5,
            "folder": f"/home/{words.host}/work",
        },
        created="2026-11-15T22:00:00Z",
    )


def with_row(info: ScalingInfo, place: int, **changes: Any) -> ScalingInfo:
    """Return a study with one of its rows changed."""
    rows = list(info.rows)
    rows[place] = replace(rows[place], **changes)
    return replace(info, rows=tuple(rows))


def bare(*, void: str | None = None) -> ScalingInfo:
    """Return a study of which only a throughput on one worker is known."""
    full = study((1,), void=void)
    return replace(
        full,
        curves=(curve((1,), launches=1),),
        today=None,
        link=(),
        batch_sweeps=(),
        split_tables=(),
        main_metric=None,
        rows=tuple(cell_row(row.cell, failed=row.failed) for row in full.rows),
        launches=(),
        verdicts=(),
        notes=(),
        margins={},
        machine={},
    )


def comparison(labels: tuple[str, ...] = ("laptop", "cluster")) -> Comparison:
    """Return studies side by side whose ratios were refused."""
    infos = tuple(study(words=Words(label=name, host=f"{name}01")) for name in labels)
    return Comparison(
        infos=infos,
        rows=tuple(
            ComparisonRow(
                study=info.label,
                label=label(point.cell),
                cell=point.cell,
                throughput=point.throughput,
                unit="samples/s",
                speedup=point.speedup,
                final_metric=near(0.9, 0.003),
            )
            for info in infos
            for point in info.curves[0].points
        ),
        ratios=(),
        refused="The machines differ, so ratios between them say nothing about the workers.",
        metric="val_accuracy",
        verdicts=(),
    )

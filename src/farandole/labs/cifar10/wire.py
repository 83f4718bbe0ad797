"""Questions 6 and 7: what crosses the network besides gradients, and whether it has to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farandole.format import listed, optional, percent, plural, seconds, size
from farandole.labs.cifar10.places import four, signed
from farandole.labs.cifar10.runs import METRIC, Trained, base_recipe, fewest_workers, trained
from farandole.labs.evidence import points
from farandole.labs.lab import Answered, Found, Question
from farandole.model.statistics import Estimate
from farandole.report.charts import bars
from farandole.report.document import Figure
from farandole.report.table import Column, Table
from farandole.study.records import BYTE_KINDS

NORMS = {"local": "left alone", "broadcast": "broadcast from rank 0", "sync": "synchronised"}
AT_START = ("parameters", "objects")
"""Kinds that cross once, whatever the number of steps."""
_PURPOSES = {
    "gradients": "averaged in every step",
    "buffers": "batch norm's statistics, for every test also where they are left alone",
    "parameters": "weights of rank 0, once at the start",
    "objects": "states of the optimizer and the like, once at the start",
    "other": "collectives of the script: losses, right answers",
    "control": "messages by which workers agree",
}


def answer_wire(found: Found, question: Question) -> Answered:
    """Answer question 6: bytes by kind."""
    runs = norms(found)
    rows = tuple(row for norm, run in runs for row in _kinds(norm, run))
    table = Table(
        name="wire",
        title="Payload by kind and by what is done with batch norm's statistics",
        columns=(
            Column(key="norm", title="statistics", text=True),
            Column(key="kind", title="kind", text=True),
            Column(key="total_bytes", title="whole run, all workers", show=size),
            Column(key="step_bytes", title="per step and worker", show=_size),
            Column(key="share", title="share of the run's bytes", show=percent),
            Column(key="what", title="what it is", text=True),
        ),
        rows=rows,
        notes=("Payload, before a transport multiplies it by 2(N-1)/N.",),
    )
    return Answered(
        question=question,
        sentences=tuple(_wire_words(runs)),
        tables=(table,),
        figures=(_wire_figure(rows),),
    )


def answer_batch_norm(found: Found, question: Question) -> Answered:
    """Answer question 7: would gradients alone do?"""
    runs = norms(found)
    local = next((run for norm, run in runs if norm == "local"), None)
    table = Table(
        name="batch_norm",
        title="Batch norm's statistics left alone, broadcast and synchronised",
        columns=(
            Column(key="norm", title="statistics", text=True),
            Column(key="workers", title="workers", show=optional),
            Column(key=METRIC, title="test accuracy", show=four, interval=True),
            Column(key="difference", title="difference to left alone", show=signed, interval=True),
            Column(key="beside_bytes", title="beside gradients, per step and worker", show=size),
            Column(key="step_s", title="step", show=seconds, interval=True),
            Column(key="seeds", title="seeds", show=optional),
        ),
        rows=tuple(_norm_row(norm, run, local) for norm, run in runs),
        notes=("Difference: of runs with the same seed, 90 % interval by Student's t.",),
    )
    return Answered(
        question=question,
        sentences=tuple(_norm_words(runs, local)),
        tables=(table,),
        figures=(
            bars(
                "batch-norm-accuracy",
                "Test accuracy by what is done with batch norm's statistics",
                "Mean over seeds.",
                table,
                x="norm",
                y=METRIC,
                zero=False,
            ),
        ),
    )


def norms(found: Found) -> list[tuple[str, Trained]]:
    """Return each way to treat the statistics with its runs, at the fewest workers above one."""
    workers = fewest_workers(found)
    if workers is None:
        return []
    name = base_recipe(found)
    runs = ((norm, trained(found, workers=workers, recipe=name, norm=norm)) for norm in NORMS)
    return [(norm, run) for norm, run in runs if run is not None]


def step_bytes(run: Trained, kind: str) -> float | None:
    """Return what one worker sends of a kind in a step; None for what it sends at the start."""
    sent = run.communication
    if sent is None or not sent.bytes_by_kind or kind in AT_START:
        return None
    return sent.bytes_by_kind.get(kind, 0.0) / run.workers


def beside_gradients(run: Trained) -> float | None:
    """Return what one worker sends in a step that is no gradient."""
    parts = [step_bytes(run, kind) for kind in BYTE_KINDS if kind != "gradients"]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _kinds(norm: str, run: Trained) -> list[tuple[Any, ...]]:
    sent = run.communication
    if sent is None:
        return []
    whole = sum(sent.total_bytes_by_kind.values())
    return [
        (
            NORMS[norm],
            kind,
            sent.total_bytes_by_kind[kind],
            step_bytes(run, kind),
            sent.total_bytes_by_kind[kind] / whole if whole else None,
            _PURPOSES[kind],
        )
        for kind in BYTE_KINDS
        if sent.total_bytes_by_kind.get(kind)
    ]


def _wire_words(runs: Sequence[tuple[str, Trained]]) -> list[str]:
    if not runs:
        return ["Nothing crosses with one worker: -np 1,2 would show what does."]
    sentences = []
    for norm, run in runs:
        gradients, beside = step_bytes(run, "gradients"), beside_gradients(run)
        sent = run.communication
        if gradients is None or beside is None or sent is None:
            continue
        others = [
            f"{kind} {size(part)}"
            for kind in BYTE_KINDS
            if kind != "gradients" and (part := step_bytes(run, kind))
        ]
        start = sum(sent.total_bytes_by_kind.get(kind, 0) for kind in AT_START) / run.workers
        sentences.append(
            f"Statistics {NORMS[norm]}: {size(gradients)} of gradients per step and worker, beside "
            f"them {listed(others) if others else 'nothing'} "
            f"({percent(beside / gradients if gradients else None)}), and {size(start)} once, at "
            "the start."
        )
    return sentences or ["Bytes by kind were not recorded."]


def _size(value: float | None) -> str:
    return "" if value is None else size(value)


def _norm_row(norm: str, run: Trained, local: Trained | None) -> tuple[Any, ...]:
    gap = run.gap_to(local) if local is not None and run is not local else None
    row = run.row
    return (
        NORMS[norm],
        run.workers,
        run.accuracy,
        gap.difference if gap else None,
        beside_gradients(run),
        row.step_s if row else None,
        len(run.by_seed),
    )


def _norm_words(runs: Sequence[tuple[str, Trained]], local: Trained | None) -> list[str]:
    if local is None or local.accuracy is None:
        return ["Batch norm was not compared: it takes 2 workers or more (-np 1,2)."]
    gaps = {
        norm: gap.difference
        for norm, run in runs
        if run is not local and (gap := run.gap_to(local)) is not None
    }
    if not gaps:
        return ["The runs that broadcast or synchronise statistics are missing."]
    parts = [f"{NORMS[norm]} {_gap_words(gap)}" for norm, gap in gaps.items()]
    return [
        f"On {plural(local.workers, 'worker')}, statistics left alone reach "
        f"{local.accuracy.value:.4f}; against that {listed(parts)}: {_norm_verdict(gaps)}.",
        "The lab said yes, too: its statistics stay on each GPU, and the first one's are kept.",
    ]


def _gap_words(gap: Estimate) -> str:
    # Running statistics are not used in training: rank 0's are the same, sent around or not.
    return "the very same" if gap.value == 0 and not gap.high else points(gap)


def _norm_verdict(gaps: Mapping[str, Estimate]) -> str:
    better = [NORMS[norm] for norm, gap in gaps.items() if gap.low is not None and gap.low > 0]
    worse = [gap for gap in gaps.values() if gap.high is not None and gap.high < 0]
    if better:
        return f"gradients alone train, but statistics {listed(better)} do better"
    if all(gap.low is None for gap in gaps.values()):
        return "gradients alone train, and single runs show no more than that"
    if len(worse) == len(gaps):
        return "gradients alone do, and do better"
    return "gradients alone do, as far as these runs can show"


def _wire_figure(rows: Sequence[tuple[Any, ...]]) -> Figure:
    return bars(
        "wire-kinds",
        "Payload per step and worker, by kind",
        "On a logarithmic axis; without what crosses once, at the start.",
        Table(
            name="wire-kinds",
            title="Payload per step and worker, by kind",
            columns=(
                Column(key="norm", title="statistics", text=True),
                Column(key="kind", title="kind", text=True),
                Column(key="step_bytes", title="bytes per step and worker", show=size),
            ),
            rows=tuple((row[0], row[1], row[3]) for row in rows if row[3] is not None),
        ),
        x="kind",
        y="step_bytes",
        series="norm",
        log=True,
    )

"""Question 5: replicas as threads of one process against processes; the order of samples."""

from __future__ import annotations

from typing import Any

from farandole.format import percent, plural, seconds, times, whole
from farandole.labs.cifar10.places import four, signed
from farandole.labs.cifar10.plan import REPLICAS
from farandole.labs.cifar10.runs import (
    METRIC,
    Trained,
    base_recipe,
    fewest_workers,
    trained,
    why_missing,
)
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import points
from farandole.labs.lab import Answered, Found, Question
from farandole.model.info.launches import CellRow
from farandole.model.measured import figure
from farandole.model.statistics import SPEED_MARGIN
from farandole.report.charts import bars
from farandole.report.document import Figure
from farandole.report.table import Column, Table

FIRST = "first_sample"
"""What the script records of each epoch: the number of the sample that it begins with."""


def answer_replicas(found: Found, question: Question) -> Answered:
    """Answer it."""
    rows = _rows(found)
    base = next((row.throughput.value for _, row in rows if row.throughput), None)
    table = Table(
        name="replicas",
        title="Replicas as threads of one process, and as processes",
        columns=(
            Column(key="arrangement", title="arrangement", text=True),
            Column(key="batch", title="batch per replica", show=whole),
            Column(key="throughput", title="images/s", interval=True),
            Column(key="step_s", title="step", show=seconds, interval=True),
            Column(key="ratio", title="over one process", show=times),
            Column(key="note", title="note", text=True),
        ),
        rows=tuple(_cells(name, row, base, found) for name, row in rows),
        notes=("Single launches: no intervals.",)
        if rows and all(row.launches < 2 for _, row in rows)
        else (),
    )
    order = _order_table(found)
    return Answered(
        question=question,
        sentences=(*_speed(found, rows), *_order_words(found), *disturbed(found, REPLICAS)),
        tables=(table, order),
        figures=(_figure(table),),
    )


def _rows(found: Found) -> list[tuple[str, CellRow]]:
    """Return one process, then threads, then processes, as far as they were run."""
    made: list[tuple[str, CellRow]] = []
    one = trained(found, workers=1)
    if one is not None and one.row is not None:
        made.append(("1 process", one.row))
    threads = found.studies.get(REPLICAS)
    for row in threads.cells if threads else ():
        replicas = dict(row.cell.params).get("replicas", "?")
        made.append((f"{replicas} threads of 1 process", row))
    several = fewest_workers(found)
    if several is not None:
        processes = trained(found, workers=several, recipe=base_recipe(found))
        if processes is not None and processes.row is not None:
            made.append((plural(several, "process"), processes.row))
    return made


def _cells(name: str, row: CellRow, base: float | None, found: Found) -> tuple[Any, ...]:
    one = trained(found, workers=1)
    return (
        name,
        one.batch if one else None,
        row.throughput,
        row.step_s,
        row.throughput.value / base if row.throughput and base else None,
        row.failed or row.void_for_speed or ("" if row.throughput else "does not count"),
    )


def _speed(found: Found, rows: list[tuple[str, CellRow]]) -> list[str]:
    by_kind = {
        kind: (name, row)
        for name, row in rows
        for kind in ("threads of", "processes")
        if kind in name and row.throughput is not None
    }
    if len(by_kind) < 2:
        missing = found.studies.get(REPLICAS)
        return [f"Threads and processes cannot be compared: {why_missing(missing)}."]
    (threads, one), (processes, many) = by_kind["threads of"], by_kind["processes"]
    assert one.throughput is not None
    assert many.throughput is not None
    ratio = many.throughput.value / one.throughput.value
    single = one.throughput.low is None or many.throughput.low is None
    speeds = [figure(one.throughput.value), figure(many.throughput.value)]
    no_interval = ", no interval" if single else ""
    words = f"{speeds[0]} images/s against {speeds[1]}{no_interval}"
    if ratio > 1 + SPEED_MARGIN:
        words = f"{speeds[1]} images/s against {speeds[0]}{no_interval}"
        verdict = (
            f"{processes} are {ratio:.2f} times as fast as {threads} ({words}): threads of one "
            "Python take turns at its lock, and one alone adds the gradients up"
        )
    elif ratio < 1 - SPEED_MARGIN:
        verdict = f"{threads} are {1 / ratio:.2f} times as fast as {processes} ({words})"
    else:
        verdict = f"{threads} and {processes} are about as fast ({words})"
    return [f"{verdict}."]


def _orders(found: Found) -> list[tuple[str, Trained]]:
    runs = ((order, trained(found, workers=1, order=order)) for order in ("epoch", "fixed"))
    return [(order, run) for order, run in runs if run is not None]


def repeats_of(run: Trained) -> float | None:
    """Return the share of later epochs that begin with the same sample as the first epoch."""
    alike = []
    for launch in run.launches:
        recorded = [metric for metric in launch.ranks[0].metrics if metric.name == FIRST]
        firsts = [metric.value for metric in sorted(recorded, key=lambda one: one.epoch or 0)]
        alike += [first == firsts[0] for first in firsts[1:]]
    return sum(alike) / len(alike) if alike else None


def _order_table(found: Found) -> Table:
    orders = _orders(found)
    with_epoch = next((run for order, run in orders if order == "epoch"), None)
    words = {"epoch": "epoch in the seed", "fixed": "the same in every epoch"}
    return Table(
        name="order",
        title="The order of samples with and without the epoch in the seed, one worker",
        columns=(
            Column(key="order", title="order", text=True),
            Column(key="repeats", title="later epochs that begin as the first", show=percent),
            Column(key=METRIC, title="test accuracy", show=four, interval=True),
            Column(key="difference", title="difference", interval=True, show=signed),
            Column(key="seeds", title="seeds", show=whole),
        ),
        rows=tuple(
            (
                words[order],
                repeats_of(run),
                run.accuracy,
                gap.difference
                if run is not with_epoch and with_epoch and (gap := run.gap_to(with_epoch))
                else None,
                len(run.by_seed),
            )
            for order, run in orders
        ),
    )


def _order_words(found: Found) -> list[str]:
    orders = dict(_orders(found))
    if len(orders) < 2:
        return ["The order of samples was not compared: its runs are missing."]
    anew, same = (repeats_of(orders[order]) for order in ("epoch", "fixed"))
    gap = orders["fixed"].gap_to(orders["epoch"])
    sentences = []
    if anew is not None and same is not None:
        sentences.append(
            f"Without the epoch in the sampler's seed {percent(same)} of the later epochs begin "
            f"with the sample that the first one began with, with it {percent(anew)}."
        )
    if gap is not None:
        effect = gap.difference
        unclear = effect.low is None or effect.high is None or effect.low <= 0 <= effect.high
        sentences.append(
            f"The same order in every epoch: {points(effect)} of accuracy"
            + (", no difference that these runs could show." if unclear else ".")
        )
    return sentences


def _figure(table: Table) -> Figure:
    return bars(
        "replicas-throughput",
        "Images per second by arrangement",
        "The same network and batch per replica, one thread each.",
        table,
        x="arrangement",
        y="throughput",
    )

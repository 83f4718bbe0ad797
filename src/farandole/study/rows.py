"""A study as rows of plain values, and as DataFrames where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from farandole.errors import MissingExtraError
from farandole.study.records import Cell, Launch, Metric, Rank, Study

Row = dict[str, Any]

STEP_COLUMNS = (
    "end_s",
    "duration_s",
    "data_s",
    "optimizer_s",
    "communication_s",
    "exposed_s",
    "ready_s",
    "done_s",
    "passes",
    "samples",
)


def cell_rows(study: Study) -> Iterator[Row]:
    """Yield each cell with how many launches it has, and how many of them succeeded."""
    for index, cell in enumerate(study.cells):
        launches = [launch for launch in study.launches if launch.cell == cell]
        good = sum(launch.outcome in ("ok", "stopped") for launch in launches)
        yield {"cell": index, **_cell(cell), "launches": len(launches), "succeeded": good}


def launch_rows(study: Study) -> Iterator[Row]:
    """Yield each launch with its cell's factors and its figures (`figure_epoch_s`, ...)."""
    index = {cell: number for number, cell in enumerate(study.cells)}
    for launch in study.launches:
        yield {
            "launch": launch.id,
            "cell": index[launch.cell],
            **_cell(launch.cell),
            "repeat": launch.repeat,
            "seed": launch.seed,
            "purpose": launch.purpose,
            "outcome": launch.outcome,
            "reason": launch.reason,
            "started": launch.started,
            "wall_s": launch.wall_s,
            "foreign_share": launch.foreign_share,
            "steal_share": launch.steal_share,
            "busy": launch.busy,
            "steps": max((len(rank.steps) for rank in launch.ranks), default=0),
            **{f"figure_{name}": value for name, value in launch.figures.items()},
        }


def step_rows(study: Study) -> Iterator[Row]:
    """Yield every step of every rank; a figure that was not measured is NaN."""
    for launch, rank in ranks(study):
        columns = [getattr(rank.steps, name).tolist() for name in STEP_COLUMNS]
        for step, values in enumerate(zip(*columns, strict=True)):
            head = {"launch": launch.id, "rank": rank.rank, "step": step}
            yield head | dict(zip(STEP_COLUMNS, values, strict=True))


def metric_rows(study: Study) -> Iterator[Row]:
    """Yield every value that was reported, by launches as a whole and by their ranks."""
    for launch in study.launches:
        for metric in all_metrics(launch):
            yield {
                "launch": launch.id,
                "name": metric.name,
                "value": metric.value,
                "step": metric.step,
                "epoch": metric.epoch,
                "time_s": metric.time_s,
                "rank": metric.rank,
            }


def ranks(study: Study) -> Iterator[tuple[Launch, Rank]]:
    """Yield every rank with its launch."""
    for launch in study.launches:
        for rank in launch.ranks:
            yield launch, rank


def all_metrics(launch: Launch) -> Iterator[Metric]:
    """Yield the metrics of a launch, then those of its ranks."""
    yield from launch.metrics
    for rank in launch.ranks:
        yield from rank.metrics


def _cell(cell: Cell) -> Row:
    return {
        "workers": cell.workers,
        "threads": cell.threads,
        "batch": cell.batch,
        "global_batch": cell.global_batch,
        "transport": cell.transport,
        "hosts": cell.hosts,
        "device": cell.device,
        "today": cell.today,
        **{f"param_{name}": value for name, value in cell.params},
    }


_HEADS = {
    "cells": ("cell", "workers"),
    "launches": ("launch", "cell", "workers"),
    "metrics": ("launch", "name", "value", "step", "epoch", "time_s", "rank"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Four tables; `cell` and `launch` are the columns by which they join."""

    cells: Any
    launches: Any
    steps: Any
    """One row per step and rank, of `Steps`' columns and `duration_s`."""
    metrics: Any


def to_pandas(study: Study) -> Frames:
    """Return the study's cells, launches, steps and metrics as DataFrames.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            "to_pandas() needs pandas, which is not installed: pip install 'farandole[pandas]'. "
            "Without it, farandole.study.rows has the same as plain rows."
        ) from error

    def frame(name: str, rows: Iterator[Row]) -> Any:
        found = list(rows)
        # A study without launches still has tables, with names to select by.
        return pandas.DataFrame(found) if found else pandas.DataFrame(columns=list(_HEADS[name]))

    return Frames(
        cells=frame("cells", cell_rows(study)),
        launches=frame("launches", launch_rows(study)),
        steps=pandas.DataFrame(_step_columns(study)),
        metrics=frame("metrics", metric_rows(study)),
    )


def _step_columns(study: Study) -> dict[str, Any]:
    """Join the steps of all ranks column by column: rows would be a million small objects."""
    found = list(ranks(study))
    lengths = [len(rank.steps) for _, rank in found]
    columns: dict[str, Any] = {
        "launch": np.repeat(np.array([launch.id for launch, _ in found], dtype=object), lengths),
        "rank": np.repeat(np.array([rank.rank for _, rank in found], dtype=np.int64), lengths),
        "step": np.concatenate([np.empty(0, np.int64), *(np.arange(n) for n in lengths)]),
    }
    for name in STEP_COLUMNS:
        blocks = [getattr(rank.steps, name) for _, rank in found]
        columns[name] = np.concatenate([np.empty(0), *blocks])
    return columns

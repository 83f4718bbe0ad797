"""A study as rows of plain values, and as DataFrames where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from farandole.errors import MissingExtraError
from farandole.study.records import Cell, Metric, Steps, Study

Row = dict[str, Any]

STEP_COLUMNS = ("end_s", "duration_s", *(field.name for field in fields(Steps)[1:]))
_LAUNCH = (
    *("repeat", "seed", "purpose", "outcome", "reason", "started", "wall_s"),
    *("foreign_share", "steal_share", "busy"),
)
# A study without launches still has tables, with names to select by.
_HEADS = {
    "cells": ("cell", "workers"),
    "launches": ("launch", "cell", "workers"),
    "metrics": ("launch", *(field.name for field in fields(Metric))),
}


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
            **{name: getattr(launch, name) for name in _LAUNCH},
            "steps": max((len(rank.steps) for rank in launch.ranks), default=0),
            **{f"figure_{name}": value for name, value in launch.figures.items()},
        }


def step_rows(study: Study) -> Iterator[Row]:
    """Yield every step of every rank; a figure that was not measured is NaN."""
    columns = _step_columns(study)
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))


def metric_rows(study: Study) -> Iterator[Row]:
    """Yield every value that was reported, by launches as a whole and by their ranks."""
    for launch in study.launches:
        for reported in (launch.metrics, *(rank.metrics for rank in launch.ranks)):
            yield from ({"launch": launch.id, **asdict(metric)} for metric in reported)


def _cell(cell: Cell) -> Row:
    names = ("workers", "threads", "batch", "global_batch", "transport", "hosts", "device", "today")
    row = {name: getattr(cell, name) for name in names}
    return row | {f"param_{name}": value for name, value in cell.params}


def _step_columns(study: Study) -> dict[str, Any]:
    """Join the steps of all ranks column by column: rows would be a million small objects."""
    ranks = [(launch, rank) for launch in study.launches for rank in launch.ranks]
    lengths = [len(rank.steps) for _, rank in ranks]
    columns: dict[str, Any] = {
        "launch": np.repeat(np.array([launch.id for launch, _ in ranks], dtype=object), lengths),
        "rank": np.repeat(np.array([rank.rank for _, rank in ranks], dtype=np.int64), lengths),
        "step": np.concatenate([np.empty(0, np.int64), *(np.arange(n) for n in lengths)]),
    }
    for name in STEP_COLUMNS:
        blocks = [getattr(rank.steps, name) for _, rank in ranks]
        columns[name] = np.concatenate([np.empty(0), *blocks])
    return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Four tables; `cell` and `launch` are the columns by which they join."""

    cells: Any
    launches: Any
    steps: Any
    """One row per step and rank, of `Steps`' columns and `duration_s`."""
    metrics: Any


def to_pandas(study: Study) -> Frames:
    """Return the study's cells, launches, steps and metrics as DataFrames."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            "to_pandas() needs pandas, which is not installed: pip install 'farandole[pandas]'. "
            "Without it, farandole.study.rows has the same as plain rows."
        ) from error

    def frame(name: str, rows: Iterator[Row]) -> Any:
        found = list(rows)
        return pandas.DataFrame(found) if found else pandas.DataFrame(columns=list(_HEADS[name]))

    return Frames(
        cells=frame("cells", cell_rows(study)),
        launches=frame("launches", launch_rows(study)),
        steps=pandas.DataFrame(_step_columns(study)),
        metrics=frame("metrics", metric_rows(study)),
    )

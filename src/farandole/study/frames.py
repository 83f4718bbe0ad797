"""A study as pandas DataFrames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from farandole.errors import MissingExtraError
from farandole.study.records import Study
from farandole.study.rows import STEP_COLUMNS, Row, cell_rows, launch_rows, metric_rows, ranks

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

"""What a backtest says of each file: as one JSON object, and as lines for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from operator import itemgetter
from statistics import fmean
from typing import Any

from farandole.format import number, percent, plural
from farandole.model.projection.backtest import FileScore
from farandole.report.escape import plain, visible
from farandole.report.table import Column, Show, Table, tabulate, to_lines

_KEYS = {"steps": "workers", "epochs": "batch ratio"}


def to_json(scores: Sequence[tuple[str, FileScore]], *, rows: bool = False) -> dict[str, Any]:
    """Return the object that `farandole backtest --json` prints; `rows` lists every scored row."""
    files = []
    for name, found in scores:
        content = {"file": name, "kind": found.kind, **_figures(found)}
        if found.two_smallest is not None:
            content["two_smallest"] = _figures(found.two_smallest)
        if rows:
            content["rows"] = [
                {"group": row.group, "row": row.label, "key": row.key, "measured": row.measured}
                | {"projected": row.projected.value, "low": row.projected.low}
                | {"high": row.projected.high, "ratio": row.projected.ratio}
                for row in found.rows
            ]
        files.append(content)
    return {"files": files}


def _figures(found: FileScore) -> dict[str, Any]:
    names = ("rows_fit", "rows_scored", "error", "coverage_90", "baselines")
    return {name: plain(getattr(found, name)) for name in names}


def lines(name: str, found: FileScore) -> list[str]:
    """Return a file's title, table, coverage and notes; of epochs, of both fits."""
    fitted = plural(found.rows_fit, "row")
    shown = [visible(f"{name}: {found.kind}, {fitted} fitted, {found.rows_scored} scored")]
    shown += [*to_lines(_table(found)), ""]
    if found.coverage_90 is not None:
        shown.append(f"  90 % intervals hold {percent(found.coverage_90)} of the scored rows.")
    shown += [f"  {group}" for group in _groups(found)]
    shown += [*(f"  {visible(note)}" for note in found.notes), ""]
    if found.two_smallest is not None:
        shown += lines(f"{name}, the two smallest batches only", found.two_smallest)
    return shown


def _table(found: FileScore) -> Table:
    """Return errors by number of workers or ratio of batches, beside simpler laws."""
    rows = []
    for key, figures in found.error.items():
        others = {law: errors.get(key) for law, errors in found.baselines.items()}
        means = {law: other and other.mean_abs_pct for law, other in others.items()}
        rows.append({"key": key} | asdict(figures) | means)
    shown: dict[str, tuple[str, Show]] = {
        "mean_abs_pct": ("mean |error|", _percent),
        "median_abs_pct": ("median", _percent),
        "bias_pct": ("bias", _signed),
        "n": ("rows", str),
        **{law: (law.replace("_", " "), _percent) for law in found.baselines},
    }
    columns = [
        Column(key=key, title=title, show=show, get=itemgetter(key))
        for key, (title, show) in shown.items()
    ]
    first = Column(key="key", title=_KEYS[found.kind], text=True, get=itemgetter("key"))
    return tabulate("backtest", "backtest", rows, (first, *columns))


def _groups(found: FileScore) -> list[str]:
    """Return one line per model or workload."""
    shown = []
    for group in dict.fromkeys(row.group for row in found.rows):
        rows = [row for row in found.rows if row.group == group]
        inside = percent(fmean(row.covered for row in rows))
        line = f"{visible(group)}: {plural(len(rows), 'row')}, {inside} inside"
        if found.kind == "steps":
            width = math.expm1(fmean(row.log_width for row in rows) / 2)
            line += f", intervals {percent(width)} to either side"
        shown.append(f"{line}.")
    return shown


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{number(value, decimals=1)} %"


def _signed(value: float) -> str:
    return f"{value:+.1f} %"

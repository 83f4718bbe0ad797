"""What a backtest says of each file: as one JSON object, and as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from farandole.format import plural
from farandole.model.projection.backtest import ErrorFigures, FileScore
from farandole.model.projection.intervals import half_width
from farandole.report.escape import visible
from farandole.report.table import Column, Table, to_lines

_KEYS = {"steps": "workers", "epochs": "batch ratio"}


def to_json(scores: Sequence[tuple[str, FileScore]], *, rows: bool = False) -> dict[str, Any]:
    """Return the object that `farandole backtest --json` prints.

    Args:
        scores: Names of files and what was found in them.
        rows: Whether every scored row is told too.
    """
    return {"files": [_file(name, found, rows=rows) for name, found in scores]}


def lines(name: str, found: FileScore) -> list[str]:
    """Return one file's title, table and sentences as aligned text."""
    return [title(name, found), *to_lines(table(found)), "", *sentences(found)]


def title(name: str, found: FileScore) -> str:
    """Say what was fitted and what scored."""
    return visible(
        f"{name}: {found.kind}, {plural(found.rows_fit, 'row')} fitted, {found.rows_scored} scored"
    )


def sentences(found: FileScore) -> list[str]:
    """Return what a table does not say: coverage, one line per model, notes."""
    told = []
    if found.coverage_90 is not None:
        told.append(f"  90 % intervals hold {found.coverage_90:.0%} of the scored rows.")
    told += [f"  {line}" for line in _groups(found)]
    return told + [f"  {visible(note)}" for note in found.notes]


def parts(name: str, found: FileScore) -> list[tuple[str, FileScore]]:
    """Return the file's score and, of epochs, the one from the two smallest batches."""
    told = [(name, found)]
    if found.two_smallest is not None:
        told.append((f"{name}, the two smallest batches only", found.two_smallest))
    return told


def _file(name: str, found: FileScore, *, rows: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "file": name,
        "kind": found.kind,
        **_figures(found),
    }
    if found.two_smallest is not None:
        told["two_smallest"] = _figures(found.two_smallest)
    if rows:
        told["rows"] = [
            {
                "group": row.group,
                "row": row.label,
                "key": row.key,
                "measured": row.measured,
                "projected": row.projected.value,
                "low": row.projected.low,
                "high": row.projected.high,
                "ratio": row.projected.ratio,
            }
            for row in found.rows
        ]
    return told


def _figures(found: FileScore) -> dict[str, Any]:
    return {
        "rows_fit": found.rows_fit,
        "rows_scored": found.rows_scored,
        "error": _errors(found.error),
        "coverage_90": found.coverage_90,
        "baselines": {law: _errors(errors) for law, errors in found.baselines.items()},
    }


def _errors(errors: Mapping[str, ErrorFigures]) -> dict[str, Any]:
    return {key: asdict(figures) for key, figures in errors.items()}


def table(found: FileScore) -> Table:
    """Return errors by number of workers or ratio of batches, beside simpler laws."""
    laws = list(found.baselines)
    columns = [
        Column(key="key", title=_KEYS[found.kind], text=True),
        Column(key="mean_abs_pct", title="mean |error|", show=_percent),
        Column(key="median_abs_pct", title="median", show=_percent),
        Column(key="bias_pct", title="bias", show=_signed),
        Column(key="n", title="rows", show=str),
        *(Column(key=law, title=law.replace("_", " "), show=_percent) for law in laws),
    ]
    rows = []
    for key, figures in found.error.items():
        others = [found.baselines[law].get(key) for law in laws]
        rows.append(
            (
                key,
                figures.mean_abs_pct,
                figures.median_abs_pct,
                figures.bias_pct,
                figures.n,
                *(other and other.mean_abs_pct for other in others),
            )
        )
    return Table(name="backtest", title="backtest", columns=tuple(columns), rows=tuple(rows))


def _groups(found: FileScore) -> list[str]:
    """Return one line per model or workload."""
    told = []
    for group in dict.fromkeys(row.group for row in found.rows):
        rows = [row for row in found.rows if row.group == group]
        share = fmean(row.covered for row in rows)
        line = f"{visible(group)}: {plural(len(rows), 'row')}, {share:.0%} inside"
        near = [row for row in rows if not row.projected.indicative]
        if found.kind == "steps" and near:
            width = fmean(row.log_width for row in near)
            floor = fmean(2 * half_width(row.projected.ratio) for row in near)
            line += f", intervals {width / floor:.0%} as wide as without calibration"
        told.append(f"{line}.")
    return told


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _signed(value: float) -> str:
    return f"{value:+.1f} %"

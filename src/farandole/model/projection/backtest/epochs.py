"""How right projected epochs are: fit on a workload's small batches, score its large ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

import numpy as np

from farandole.errors import DataError
from farandole.model.projection.backtest.scores import FileScore, Guess, score
from farandole.model.projection.epochs.curve import fit_epochs
from farandole.model.projection.records import EpochRow

FitOn = Literal["half", "two_smallest"]
"""Batches of at most half of the largest one, or the two smallest batches only."""

Rule = Callable[[int], float]


def backtest_epochs(
    groups: Mapping[str, Sequence[EpochRow]], *, notes: Iterable[str] = ()
) -> FileScore:
    """Fit each workload's small batches, and once more its two smallest only; score the rest."""
    half = score_epochs(groups, fit_on="half")
    try:
        two = score_epochs(groups, fit_on="two_smallest")
    except DataError:
        two = None
    return replace(half, notes=(*notes, *half.notes), two_smallest=two)


def score_epochs(
    rows_by_workload: Mapping[str, Sequence[EpochRow]], *, fit_on: FitOn = "half"
) -> FileScore:
    """Fit each workload on its small batches and predict the mean of each larger one.

    Fits never see the rows that are scored. Errors are keyed by the ratio to the largest fitted
    batch, rounded to a power of two.

    Raises:
        DataError: no workload has batches to fit and batches to score.
    """
    guesses: list[Guess] = []
    notes: list[str] = []
    rows_fit = rows_scored = 0
    for workload, rows in rows_by_workload.items():
        fitted, held_out = split_rows(rows, fit_on)
        if len({row.global_batch for row in fitted if row.reached}) < 2 or not held_out:
            sizes = ", ".join(str(size) for size in sorted({row.global_batch for row in rows}))
            notes.append(
                f"{workload} was left out: of its global batches ({sizes}) two must be there to "
                "fit, and a larger one to score."
            )
            continue
        rows_fit += len(fitted)
        rows_scored += len(held_out)
        guesses += _guesses(workload, fitted, held_out)
    if not guesses:
        raise DataError(" ".join(notes) or "There is no workload to score.")
    found = score("epochs", guesses, rows_fit=rows_fit, notes=notes)
    # A guess is of a batch, and a row is a run: files are counted in rows.
    return replace(found, rows_scored=rows_scored)


def split_rows(
    rows: Sequence[EpochRow], fit_on: FitOn
) -> tuple[tuple[EpochRow, ...], tuple[EpochRow, ...]]:
    """Return the rows to fit and those to score.

    A run that did not reach the target has no epochs to score.
    """
    sizes = sorted({row.global_batch for row in rows})
    if not sizes:
        return (), ()
    limit = sizes[-1] / 2 if fit_on == "half" else sizes[:2][-1]
    fitted = tuple(row for row in rows if row.global_batch <= limit)
    held_out = tuple(row for row in rows if row.global_batch > limit and row.reached)
    return fitted, held_out


def ratio_key(ratio: float) -> str:
    """Name a ratio by the nearest power of two, from 2 on."""
    return str(2 ** max(1, round(math.log2(ratio))))


def _guesses(
    workload: str, fitted: Sequence[EpochRow], held_out: Sequence[EpochRow]
) -> Iterator[Guess]:
    fit = fit_epochs(fitted)
    rules = {name: make(*_means(fitted)) for name, make in _BASELINES.items()}
    for batch, measured in zip(*_means(held_out), strict=True):
        projected = fit.at(batch)
        yield Guess(
            group=workload,
            key=ratio_key(projected.ratio),
            measured=measured,
            projected=projected,
            baselines={name: rule(batch) for name, rule in rules.items()},
            label=f"{workload}, global batch {batch}",
        )


def _means(rows: Sequence[EpochRow]) -> tuple[list[int], list[float]]:
    """Return batches, ascending, and the mean epochs of their runs that reached the target."""
    by_batch: dict[int, list[float]] = {}
    for row in rows:
        if row.reached:
            by_batch.setdefault(row.global_batch, []).append(row.epochs)
    sizes = sorted(by_batch)
    return sizes, [fmean(by_batch[size]) for size in sizes]


def _constant_epochs(_: Sequence[int], epochs: Sequence[float]) -> Rule:
    return lambda _: epochs[-1]


def _constant_steps(sizes: Sequence[int], epochs: Sequence[float]) -> Rule:
    return lambda batch: epochs[-1] * batch / sizes[-1]


def _hyperbola(sizes: Sequence[int], epochs: Sequence[float]) -> Rule:
    """Least squares of relative errors, without priors and weights."""
    from scipy.optimize import nnls

    terms = np.array([[1.0 / e, size / e] for size, e in zip(sizes, epochs, strict=True)])
    (least, slope), _ = nnls(terms, np.ones(len(sizes)))
    return lambda batch: float(least + slope * batch)


_BASELINES: Mapping[str, Callable[[Sequence[int], Sequence[float]], Rule]] = {
    "constant_epochs": _constant_epochs,
    "constant_steps": _constant_steps,
    "hyperbola": _hyperbola,
}

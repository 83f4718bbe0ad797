"""What the original's learning rate does, beside one that trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.format import listed, number, percent, plural, whole
from farandole.labs import columns
from farandole.labs.columns import four, plain, signed
from farandole.labs.evidence import NO_INTERVALS, counts_in_words, points, without_intervals
from farandole.labs.lab import Answered, Found
from farandole.labs.original import ORIGINAL as RECIPE
from farandole.labs.settings import Setting, settings_of
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.questions import ORIGINAL, TRAINING, VALIDATION
from farandole.model.gap import finals_by_seed
from farandole.model.statistics import Estimate
from farandole.report.charts import bars
from farandole.report.table import Column, Table

_SPOILT = 0.5
"""Below this share of the accuracy that another rate gets, a rate does not train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One number of workers at one rate."""

    setting: Setting
    validation: Estimate | None
    diverged: int
    """Runs that ended without a finite loss."""
    lost: Estimate | None
    """To the rate that trains, on as many workers; None for that itself."""


def tried(found: Found) -> list[Tried]:
    """Return every number of workers at the rate that trains, and at the original's."""
    settings = settings_of(found, "workers", "original")
    good = {one.workers: one for one in settings if one.recipe != RECIPE.name}
    return [
        Tried(
            setting=one,
            validation=one.final(VALIDATION),
            diverged=_diverged(one),
            lost=_lost(one, good.get(one.workers)) if one.recipe == RECIPE.name else None,
        )
        for one in sorted(settings, key=lambda one: (one.recipe == RECIPE.name, one.workers))
    ]


def answer_original(found: Found, kind: Kind) -> Answered:
    """Answer by runs at the lab's rate, beside those of the study of workers."""
    rows = tried(found)
    table = Table(
        name=ORIGINAL.key,
        title="Accuracy at a rate that trains, and at the original's",
        columns=(
            columns.RECIPE,
            columns.WORKERS,
            Column(key="rate", title="learning rate", show=plain),
            Column(key="training", title="training accuracy", show=four, interval=True),
            Column(key="validation", title="validation accuracy", show=four, interval=True),
            Column(key="loss", title="training loss", interval=True),
            Column(key="lost", title="difference (points)", show=signed, interval=True),
            Column(key="diverged", title="diverged", show=whole),
            Column(key="seeds", title="seeds", show=whole),
        ),
        rows=tuple(_row(row) for row in rows),
        notes=(
            "Differences are to the other recipe on as many workers, paired by seeds, with 90 % "
            "intervals. Diverged: runs whose loss is no finite number at the end.",
        ),
    )
    return Answered(
        question=ORIGINAL,
        sentences=tuple(_said(kind, rows, found)),
        tables=(table,),
        figures=(
            bars(
                "accuracy-by-rate",
                "Validation accuracy by recipe, workers and learning rate",
                "At the end of training; both recipes multiply their rate by the workers.",
                _drawn(rows),
                x="setting",
                y="validation",
            ),
        ),
    )


def _drawn(rows: list[Tried]) -> Table:
    return Table(
        name="accuracy-by-rate",
        title="Validation accuracy by learning rate",
        columns=(
            Column(key="setting", title="setting", text=True),
            Column(key="validation", title="validation accuracy", show=four, interval=True),
        ),
        rows=tuple(
            (f"{one.recipe}, {plural(one.workers, 'worker')}, rate {one.rate:g}", row.validation)
            for row in rows
            if (one := row.setting) and row.validation is not None
        ),
    )


def original_words(found: Found, kind: Kind) -> list[str]:
    """Say what the original's rate did in the runs here; nothing where none was made."""
    said = []
    for row in tried(found):
        one = row.setting
        if one.recipe != RECIPE.name:
            continue
        where = f"at {kind.original_rate:g} x {one.workers} = {one.rate:g}"
        if row.validation is None:
            said.append(f"{where} {plural(row.diverged, 'run')} diverged")
            continue
        words = f"{where} validation ends at {four(row.validation.value)}"
        if row.lost is not None:
            words += f", {points(row.lost)}"
        said.append(words)
    return said


def _diverged(one: Setting) -> int:
    values = finals_by_seed(one.launches, "loss").values()
    return sum(value != value or value in (float("inf"), float("-inf")) for value in values)


def _lost(one: Setting, other: Setting | None) -> Estimate | None:
    gap = one.gap(other, VALIDATION) if other is not None else None
    return gap.difference if gap else None


def _row(row: Tried) -> tuple[Any, ...]:
    one = row.setting
    return (
        *(one.recipe, one.workers, one.rate, one.final(TRAINING), row.validation),
        *(one.final("loss"), row.lost, row.diverged, one.seeds),
    )


def _said(kind: Kind, rows: list[Tried], found: Found) -> list[str]:
    own = [row for row in rows if row.setting.recipe == RECIPE.name]
    if not own:
        return [
            "The original's rate was not tried here: it is, unless --recipe leaves it out.",
        ]
    said = [f"With the lab's rate ({kind.optimizer}): {listed(original_words(found, kind))}."]
    good = [row for row in rows if row.setting.recipe != RECIPE.name and row.validation]
    if good:
        first = good[0]
        assert first.validation is not None
        times = kind.original_rate / first.setting.base_rate
        said.append(
            f"The rate that is used here, {first.setting.base_rate:g} for one worker, is "
            f"{number(times)} times smaller and ends at {four(first.validation.value)} on "
            f"{plural(first.setting.workers, 'worker')}."
        )
        failed = [
            row.setting.workers
            for row in own
            if row.validation is None or row.validation.value < _SPOILT * first.validation.value
        ]
        if failed:
            said.append(
                f"With the lab's, {counts_in_words(failed)} end below "
                f"{percent(_SPOILT)} of that: it does not train."
            )
    if without_intervals(row.validation for row in own):
        said.append(NO_INTERVALS)
    return said

"""Recipes compared: what accuracy loses as workers are added, and which recipe keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.format import listed, plural, whole
from farandole.labs import columns
from farandole.labs.columns import four, in_points, plain, signed
from farandole.labs.evidence import points
from farandole.labs.lab import Answered, Found, Question
from farandole.labs.settings import Setting, settings_of
from farandole.model.metrics import Gap, smallest_difference
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table

METRIC = "val_accuracy"
STUDIES = ("workers", "recipes")
"""Where recipes are compared: the first has the fewest workers, too."""

_NONE = Estimate(value=0.0, low=0.0, high=0.0)
"""The baseline's difference to itself, by definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A setting with what became of it."""

    setting: Setting
    accuracy: Estimate
    gap: Gap | None
    """To the fewest workers; None for these themselves."""
    resolvable: float

    @property
    def worst(self) -> float:
        """The lower end of the difference, or the difference where there is no interval."""
        if self.gap is None:
            return 0.0
        low = self.gap.difference.low
        return self.gap.difference.value if low is None else low


def trained(found: Found, studies: Sequence[str] = STUDIES) -> list[Trained]:
    """Return every setting that ended with an accuracy, the one with fewest workers first."""
    settings = [
        (one, value)
        for one in settings_of(found, *studies)
        if (value := one.final(METRIC)) is not None
    ]
    if not settings:
        return []
    base = min((one for one, _ in settings if one.study == "workers"), key=_size, default=None)
    return sorted(
        (
            Trained(
                setting=one,
                accuracy=value,
                gap=None if base is None or one is base else one.gap(base, METRIC),
                resolvable=smallest_difference(one.test_samples, value.value, max(1, one.seeds)),
            )
            for one, value in settings
        ),
        key=lambda row: row.setting is not base,
    )


def _size(one: Setting) -> int:
    return one.workers


def answer_keeping(found: Found, question: Question, studies: Sequence[str] = STUDIES) -> Answered:
    """Answer by recipes: accuracy by workers, with the difference to one worker."""
    rows = trained(found, studies)
    table = Table(
        name=question.key,
        title="Accuracy by recipe and workers, with the difference to the fewest workers",
        columns=(
            columns.RECIPE,
            columns.WORKERS,
            Column(key="global_batch", title="global batch", show=whole),
            Column(key="rate", title="learning rate", show=plain),
            Column(key="epochs", title="epochs", show=whole),
            Column(key="steps", title="steps", show=whole),
            columns.ACCURACY,
            Column(key="difference", title="difference (points)", show=signed, interval=True),
            Column(key="seeds", title="seeds", show=whole),
            Column(key="resolvable", title="resolvable (points)", show=in_points),
        ),
        rows=tuple(_keeping_row(row) for row in rows),
        notes=(
            "Differences are paired by seeds, with 90 % intervals. Resolvable: the smallest "
            "difference of two such accuracies that the test samples can tell from none.",
        ),
    )
    return Answered(
        question=question,
        sentences=tuple(_keeping_words(rows)),
        tables=(table,),
        figures=(
            lines(
                "accuracy-by-recipe",
                "Accuracy by recipe and workers",
                "At the end of training, over seeds. Every line begins with the fewest workers, "
                "where fixed, linear and warmup are one and the same.",
                _by_recipe(rows),
                x="workers",
                y="accuracy",
                series="recipe",
                zero=False,
            ),
        ),
    )


def _keeping_row(row: Trained) -> tuple[Any, ...]:
    one = row.setting
    return (
        *(one.recipe, one.workers, one.global_batch, one.rate, one.epochs, one.counted),
        *(row.accuracy, row.gap.difference if row.gap else _NONE, one.seeds, row.resolvable),
    )


def _by_recipe(rows: Sequence[Trained]) -> Table:
    """Return the accuracies as lines, each of which begins at the baseline."""
    base = [row for row in rows if row.gap is None]
    others = [row for row in rows if row.gap is not None]
    names = dict.fromkeys(row.setting.recipe for row in others or base)
    return Table(
        name="accuracy-by-recipe",
        title="Accuracy by recipe and workers",
        columns=(columns.RECIPE, columns.WORKERS, columns.ACCURACY),
        rows=tuple(
            (name, row.setting.workers, row.accuracy)
            for name in names
            for row in (*base[:1], *(row for row in others if row.setting.recipe == name))
        ),
    )


def _keeping_words(rows: list[Trained]) -> list[str]:
    others = [row for row in rows if row.gap is not None]
    if not others:
        return ["Only one number of workers ran to its end: there is nothing to compare."]
    base = next((row for row in rows if row.gap is None), None)
    most = max(row.setting.workers for row in others)
    at_most = [row for row in others if row.setting.workers == most]
    best = max(at_most, key=lambda row: row.worst)
    said = []
    if base is not None:
        alone = f"{plural(base.setting.workers, 'worker')} ({four(base.accuracy.value)})"
        what = (
            f"keeps most of the accuracy of {alone}"
            if len(at_most) > 1
            else f"is compared with {alone}"
        )
        said.append(
            f"On {plural(most, 'worker')}, recipe {best.setting.recipe} {what}: "
            f"{four(best.accuracy.value)}, {_gap(best)}."
        )
    rest = [f"{row.setting.recipe} {_gap(row)}" for row in at_most if row is not best]
    if rest:
        said.append(f"The other recipes on {plural(most, 'worker')}: {listed(rest)}.")
    said.append(
        f"{plural(most, 'worker')} at a fixed number of epochs make {_share(most)} of the steps, "
        "each on an averaged gradient of a larger batch: scaling the rate makes up for fewer "
        "steps, a warm-up for what a large rate does to untrained weights, more epochs for steps "
        "that are missing."
    )
    said.append(
        f"{best.setting.test_samples:,} test samples and {plural(best.setting.seeds, 'seed')} tell "
        f"differences from {100 * best.resolvable:.2f} points on from none."
    )
    if best.setting.seeds < 2:
        said.append("One seed: no intervals, so that differences may be luck.")
    return said


def _share(workers: int) -> str:
    words = {2: "half", 4: "a quarter", 8: "an eighth"}
    return words.get(workers, f"1/{workers}")


def _gap(row: Trained) -> str:
    if row.gap is None:
        return "the baseline"
    said = points(row.gap.difference)
    return f"{said}, {row.gap.diverged} of its seeds diverged" if row.gap.diverged else said

"""Keeping accuracy as the global batch grows, and the best number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.labs.evidence import points
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist.questions import (
    ACCURACY_COLUMN,
    BEST,
    HERE,
    KEEPING_ACCURACY,
    LAB,
    METRIC,
    RECIPE_COLUMN,
    SOURCE_COLUMN,
    WORKERS_COLUMN,
    four,
    in_points,
    plain,
    signed,
)
from farandole.labs.settings import Setting, settings_of
from farandole.model.gap import Gap, smallest_difference
from farandole.model.measured import count
from farandole.model.statistics import Estimate
from farandole.report.lab.charts import lines
from farandole.report.table import Column, Table
from farandole.report.text import listed, whole

_MNIST_TEST = 10_000
"""Test samples of MNIST, by which the lab's accuracies are judged."""

_NONE = Estimate(value=0.0, low=0.0, high=0.0)
"""The baseline's difference to itself, by definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
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


def trained(found: Found) -> list[_Trained]:
    """Return every setting that ended with an accuracy, the one with fewest workers first."""
    settings = [
        (one, value)
        for one in settings_of(found, "workers", "recipes")
        if (value := one.final(METRIC)) is not None
    ]
    if not settings:
        return []
    base = min((one for one, _ in settings if one.study == "workers"), key=_size, default=None)
    return sorted(
        (
            _Trained(
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


def answer_keeping(found: Found) -> Answered:
    """Answer by recipes: accuracy by workers, with the difference to one worker."""
    rows = trained(found)
    table = Table(
        name="keeping_accuracy",
        title="Accuracy by recipe and workers, with the difference to the fewest workers",
        columns=(
            RECIPE_COLUMN,
            WORKERS_COLUMN,
            Column(key="global_batch", title="global batch", show=whole),
            Column(key="rate", title="learning rate", show=plain),
            Column(key="epochs", title="epochs", show=whole),
            Column(key="steps", title="steps", show=whole),
            ACCURACY_COLUMN,
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
        question=KEEPING_ACCURACY,
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


def _keeping_row(row: _Trained) -> tuple[Any, ...]:
    one = row.setting
    return (
        *(one.recipe, one.workers, one.global_batch, one.rate, one.epochs, one.counted),
        *(row.accuracy, row.gap.difference if row.gap else _NONE, one.seeds, row.resolvable),
    )


def _by_recipe(rows: Sequence[_Trained]) -> Table:
    """Return the accuracies as lines, each of which begins at the baseline."""
    base = [row for row in rows if row.gap is None]
    others = [row for row in rows if row.gap is not None]
    names = dict.fromkeys(row.setting.recipe for row in others or base)
    return Table(
        name="accuracy-by-recipe",
        title="Accuracy by recipe and workers",
        columns=(RECIPE_COLUMN, WORKERS_COLUMN, ACCURACY_COLUMN),
        rows=tuple(
            (name, row.setting.workers, row.accuracy)
            for name in names
            for row in (*base[:1], *(row for row in others if row.setting.recipe == name))
        ),
    )


def _keeping_words(rows: list[_Trained]) -> list[str]:
    others = [row for row in rows if row.gap is not None]
    if not others:
        return ["Only one number of workers ran to its end: there is nothing to compare."]
    base = next((row for row in rows if row.gap is None), None)
    most = max(row.setting.workers for row in others)
    at_most = [row for row in others if row.setting.workers == most]
    best = max(at_most, key=lambda row: row.worst)
    said = []
    if base is not None:
        said.append(
            f"On {count(most, 'worker')}, recipe {best.setting.recipe} keeps most of the accuracy "
            f"of {count(base.setting.workers, 'worker')} ({four(base.accuracy.value)}): "
            f"{four(best.accuracy.value)}, {_gap(best)}."
        )
    rest = [f"{row.setting.recipe} {_gap(row)}" for row in at_most if row is not best]
    if rest:
        said.append(f"The other recipes on {count(most, 'worker')}: {listed(rest)}.")
    said.append(
        f"{count(most, 'worker')} at a fixed number of epochs make a {_share(most)} of the steps, "
        "each on an averaged gradient of a larger batch: scaling the rate makes up for fewer "
        "steps, a warm-up for what a large rate does to untrained weights, more epochs for steps "
        "that are missing."
    )
    said.append(
        f"{best.setting.test_samples:,} test samples and {count(best.setting.seeds, 'seed')} tell "
        f"differences from {100 * best.resolvable:.2f} points on from none."
    )
    if best.setting.seeds < 2:
        said.append("One seed: no intervals, so that differences may be luck.")
    return said


def _share(workers: int) -> str:
    words = {2: "half", 4: "quarter", 8: "eighth"}
    return words.get(workers, f"1/{workers}")


def _gap(row: _Trained) -> str:
    if row.gap is None:
        return "the baseline"
    said = points(row.gap.difference)
    return f"{said}, {row.gap.diverged} of its seeds diverged" if row.gap.diverged else said


def answer_best(found: Found) -> Answered:
    """Answer by the best recipe of every number of workers, beside the lab's two nodes."""
    rows = trained(found)
    best: dict[int, _Trained] = {}
    for row in rows:
        known = best.get(row.setting.workers)
        if known is None or row.accuracy.value > known.accuracy.value:
            best[row.setting.workers] = row
    published = _published(found)
    table = Table(
        name="best",
        title="The best accuracy of each number of workers",
        columns=(
            SOURCE_COLUMN,
            Column(key="nodes", title="nodes", show=whole),
            WORKERS_COLUMN,
            RECIPE_COLUMN,
            ACCURACY_COLUMN,
            Column(key="seeds", title="seeds", show=whole),
        ),
        rows=(
            *(
                (HERE, 1, number, row.setting.recipe, row.accuracy, row.setting.seeds)
                for number, row in sorted(best.items())
            ),
            *((LAB, nodes, number, "linear", value, 1) for nodes, number, value in published),
        ),
    )
    return Answered(
        question=BEST,
        sentences=(*_best_words(best), *_lab_words(published)),
        tables=(table,),
        figures=(
            lines(
                "best-by-workers",
                "Best accuracy by workers",
                "Here with the best recipe of each count; the lab's are on two nodes.",
                table,
                x="workers",
                y="accuracy",
                series="source",
                zero=False,
                published=(LAB,),
            ),
        ),
    )


def _published(found: Found) -> list[tuple[int, int, Estimate]]:
    info = found.published.get("mnist_two_nodes")
    return [
        (row.cell.hosts, row.cell.workers, row.final)
        for row in (info.metrics if info else ())
        if info and row.metric == info.main_metric and row.final is not None
    ]


def _best_words(best: dict[int, _Trained]) -> list[str]:
    if not best:
        return ["No launch here ran to its end: there is no accuracy to compare."]
    number, top = max(best.items(), key=lambda item: item[1].accuracy.value)
    others = [row for other, row in best.items() if other != number]
    said = [
        f"The best accuracy here is {four(top.accuracy.value)}, with {count(number, 'worker')} and "
        f"recipe {top.setting.recipe}."
    ]
    if others:
        second = max(others, key=lambda row: row.accuracy.value)
        ahead = top.accuracy.value - second.accuracy.value
        tell = "more" if ahead > top.resolvable else "less"
        said.append(
            f"That is {100 * ahead:.2f} points above {count(second.setting.workers, 'worker')}, "
            f"{tell} than the {100 * top.resolvable:.2f} that the test samples can tell from none."
        )
    return said


def _lab_words(published: list[tuple[int, int, Estimate]]) -> list[str]:
    if len(published) < 2:
        return []
    ranked = sorted(published, key=lambda row: -row[2].value)
    (_, number, top), (_, other, second) = ranked[0], ranked[1]
    least = smallest_difference(_MNIST_TEST, top.value, 1)
    ahead = top.value - second.value
    close = "cannot be told apart" if ahead <= least else "differ"
    words = (
        f"On the lab's two nodes {number} GPUs have the best accuracy, {four(top.value)}; by "
        f"single runs and {_MNIST_TEST:,} test samples, which tell {100 * least:.2f} points from "
        f"none, {number} and {other} GPUs ({100 * ahead:.2f} points apart) {close}"
    )
    _, last, worst = ranked[-1]
    if last != other:
        behind = top.value - worst.value
        tell = "are clear" if behind > least else "are not clear"
        words += f", and the {100 * behind:.2f} points that {last} GPUs lack {tell} by that measure"
    return [f"{words}."]

"""The best number of workers, and keeping accuracy as the global batch grows."""

from __future__ import annotations

from farandole.format import plural, whole
from farandole.labs import columns, keeping
from farandole.labs.columns import HERE, LAB, four
from farandole.labs.keeping import Trained, trained
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist.questions import BEST, KEEPING_ACCURACY
from farandole.model.gap import smallest_difference
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table

_MNIST_TEST = 10_000
"""Test samples of MNIST, by which the lab's accuracies are judged."""


def answer_keeping(found: Found) -> Answered:
    """Answer by recipes: accuracy by workers, with the difference to one worker."""
    return keeping.answer_keeping(found, KEEPING_ACCURACY)


def answer_best(found: Found) -> Answered:
    """Answer by the best recipe of every number of workers, beside the lab's two nodes."""
    rows = trained(found)
    best: dict[int, Trained] = {}
    for row in rows:
        known = best.get(row.setting.workers)
        if known is None or row.accuracy.value > known.accuracy.value:
            best[row.setting.workers] = row
    published = _published(found)
    table = Table(
        name="best",
        title="The best accuracy of each number of workers",
        columns=(
            columns.SOURCE,
            Column(key="nodes", title="nodes", show=whole),
            columns.WORKERS,
            columns.RECIPE,
            columns.ACCURACY,
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


def _best_words(best: dict[int, Trained]) -> list[str]:
    if not best:
        return ["No launch here ran to its end: there is no accuracy to compare."]
    number, top = max(best.items(), key=lambda item: item[1].accuracy.value)
    others = [row for other, row in best.items() if other != number]
    said = [
        f"The best accuracy here is {four(top.accuracy.value)}, with {plural(number, 'worker')} "
        f"and recipe {top.setting.recipe}."
    ]
    if others:
        second = max(others, key=lambda row: row.accuracy.value)
        ahead = top.accuracy.value - second.accuracy.value
        tell = "more" if ahead > top.resolvable else "less"
        said.append(
            f"That is {100 * ahead:.2f} points above {plural(second.setting.workers, 'worker')}, "
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

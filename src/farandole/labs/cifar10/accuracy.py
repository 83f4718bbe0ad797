"""Question 4: what a large global batch does to accuracy, and what helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.format import listed, optional, plural, whole
from farandole.labs.cifar10.places import WORKERS, four, signed
from farandole.labs.cifar10.runs import METRIC, Trained, all_trained, tested_on
from farandole.labs.evidence import points
from farandole.labs.lab import Answered, Found, Question
from farandole.model.gap import Gap, smallest_difference
from farandole.model.statistics import Estimate
from farandole.recipes import RECIPES
from farandole.report.charts import by_epoch, lines
from farandole.report.document import Figure
from farandole.report.table import Column, Table
from farandole.study.records import Cell

LAB_TEST_SAMPLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One way of training, held against one worker."""

    run: Trained
    gap: Gap | None
    """To one worker; None for that itself, and where no seed can be compared."""
    resolved: float | None
    """Smallest difference that the test set can tell from none."""

    @property
    def verdict(self) -> str:
        """What the difference comes to, in words."""
        if self.gap is None:
            return ""
        found = self.gap.difference
        if self.gap.diverged:
            return "diverged in some runs"
        if found.low is None or found.high is None:
            return "one seed: no interval"
        if self.resolved is not None and abs(found.value) < self.resolved:
            return "not resolved"
        if found.high < 0:
            return "loses"
        return "gains" if found.low > 0 else "no difference shown"


def answer_accuracy(found: Found, question: Question) -> Answered:
    """Answer it."""
    runs = all_trained(found)
    held = hold(runs, tested_on(found))
    return Answered(
        question=question,
        sentences=(*_sentences(held, tested_on(found)), *_theirs(found)),
        tables=(_table(held),),
        figures=(_by_workers(held), _by_epoch(runs)),
    )


def hold(runs: Sequence[Trained], tests: int) -> tuple[Held, ...]:
    """Compare every way of training with one worker, seed by seed."""
    one = next((run for run in runs if run.workers == 1), None)
    held = []
    for run in runs:
        gap = run.gap_to(one) if one is not None and run is not one else None
        held.append(Held(run=run, gap=gap, resolved=_resolved(run, gap, tests)))
    return tuple(held)


def best(held: Sequence[Held], workers: int) -> Held | None:
    """Return the recipe with the highest accuracy at a number of workers, equal epochs first."""
    known = [one for one in held if one.run.workers == workers and one.run.accuracy is not None]
    equal = [one for one in known if not _more_epochs(one)]
    return max(equal or known, key=_accuracy, default=None)


def most_workers(held: Sequence[Held]) -> int:
    """Return the largest number of workers; 0 without any run."""
    return max((one.run.workers for one in held), default=0)


def _resolved(run: Trained, gap: Gap | None, tests: int) -> float | None:
    if gap is None or run.accuracy is None or not 0 <= run.accuracy.value <= 1:
        return None
    return smallest_difference(tests, run.accuracy.value, gap.seeds)


def _accuracy(held: Held) -> float:
    return held.run.accuracy.value if held.run.accuracy is not None else -1.0


def _more_epochs(held: Held) -> bool:
    name = held.run.recipe
    return name in RECIPES and RECIPES[name].longer != 1.0


def _table(held: Sequence[Held]) -> Table:
    single = all(one.gap is None or one.gap.difference.low is None for one in held)
    return Table(
        name="accuracy",
        title="Accuracy by recipe and workers, and the difference to one worker",
        columns=(
            Column(key="recipe", title="recipe", text=True),
            WORKERS,
            Column(key="global_batch", title="global batch", show=whole),
            Column(key="epochs", title="epochs", show=whole),
            Column(key="steps", title="steps made", show=whole),
            Column(key=METRIC, title="test accuracy", show=four, interval=True),
            Column(key="difference", title="difference to 1 worker", show=signed, interval=True),
            Column(key="resolvable", title="smallest resolved", show=four),
            Column(key="seeds", title="seeds", show=optional),
            Column(key="verdict", title="verdict", text=True),
            Column(key="speed", title="speed", text=True),
        ),
        rows=tuple(_row(one) for one in held),
        notes=(
            "Accuracy: mean and 95 % interval over seeds. Difference: of runs with the same seed, "
            "90 % interval by Student's t.",
            *(("One seed each: no intervals.",) if single else ()),
            *dict.fromkeys(
                f"Speed: {one.run.row.void_for_speed}."
                for one in held
                if one.run.row and one.run.row.void_for_speed
            ),
        ),
    )


def _row(held: Held) -> tuple[Any, ...]:
    run, row = held.run, held.run.row
    return (
        run.name,
        run.workers,
        run.batch * run.workers if run.batch else None,
        run.epochs,
        run.steps,
        run.accuracy,
        held.gap.difference if held.gap else None,
        held.resolved,
        len(run.by_seed),
        held.verdict,
        "void" if row and row.void_for_speed else "counts",
    )


def _sentences(held: Sequence[Held], tests: int) -> list[str]:
    most = most_workers(held)
    one = next((each for each in held if each.run.workers == 1), None)
    if one is None or one.run.accuracy is None:
        return ["Accuracy was not measured: the runs of one worker are missing."]
    alone = f"one worker reaches {one.run.accuracy.value:.4f}"
    if most < 2:
        return [f"Only {alone}: with -np 1,2 there would be something to compare."]
    sentences = []
    plain = next((x for x in held if x.run.workers == most and x.run.name == "fixed"), None)
    if plain is not None and plain.gap is not None:
        sentences.append(
            f"{plural(most, 'worker')} at one worker's rate: {points(plain.gap.difference)} of "
            f"accuracy, where {alone}{_fewer(plain.run, one.run)}."
        )
    chosen = best(held, most)
    if chosen is not None and chosen.gap is not None and chosen is not plain:
        sentences.append(
            f"The best recipe at {plural(most, 'worker')} and equal epochs is {chosen.run.name}: "
            f"{points(chosen.gap.difference)}."
        )
    elif chosen is plain and plain is not None:
        sentences.append("No other recipe with as many epochs did better there.")
    longer = next((x for x in held if x.run.workers == most and _more_epochs(x)), None)
    if longer is not None and longer.gap is not None:
        sentences.append(
            f"More epochs ({optional(longer.run.epochs)} in place of {optional(one.run.epochs)}) "
            f"at one worker's rate: {points(longer.gap.difference)}."
        )
    limits = [each.resolved for each in held if each.resolved is not None]
    if limits:
        sentences.append(
            f"With {tests:,} test images and {plural(len(one.run.by_seed), 'seed')}, differences "
            f"below {100 * max(limits):.2f} points cannot be told from none."
        )
    return sentences


def _fewer(many: Trained, one: Trained) -> str:
    if many.steps is None or one.steps is None:
        return ""
    return f": a run makes {many.steps:,} updates in place of {one.steps:,}"


def _theirs(found: Found) -> list[str]:
    study = found.published.get("cifar10_accuracy")
    ends: dict[str, dict[Cell, float]] = {"accuracy": {}, "loss": {}}
    for row in study.metrics if study else ():
        if row.metric in ends and row.final is not None:
            ends[row.metric][row.cell] = row.final.value
    if not ends["accuracy"]:
        return []
    told = [
        f"{value:.10g} % (loss {ends['loss'][cell]:.10g}, {dict(cell.params)['attempt']})"
        for cell, value in ends["accuracy"].items()
    ]
    shares = list(ends["accuracy"].values())
    limit = 100 * smallest_difference(LAB_TEST_SAMPLES, min(shares) / 100, 1)
    cell = next(iter(ends["accuracy"]))
    return [
        f"The lab's runs at batch {cell.batch} on {plural(cell.workers, 'GPU')} ended at "
        f"{listed(told)}, {max(shares) - min(shares):.2f} points apart; CIFAR-10's "
        f"{LAB_TEST_SAMPLES:,} test images would resolve {limit:.2f} between single runs, and it "
        "has no run of one GPU to compare with."
    ]


def _by_workers(held: Sequence[Held]) -> Figure:
    one = next((each for each in held if each.run.workers == 1), None)
    rows: list[tuple[str, int, Estimate]] = []
    for name in dict.fromkeys(each.run.name for each in held):
        several = [x for x in held if x.run.name == name and x.run.workers > 1]
        # With one worker all of them are one and the same, but for more epochs.
        if one and one.run.accuracy and several and not _more_epochs(several[0]):
            rows.append((name, 1, one.run.accuracy))
        rows += [(name, x.run.workers, x.run.accuracy) for x in several if x.run.accuracy]
    return lines(
        "accuracy-workers",
        "Test accuracy by workers and recipe",
        "Equal epochs, but for the recipe longer; with one worker the others are the same.",
        Table(
            name="accuracy-workers",
            title="Test accuracy by workers and recipe",
            columns=(
                Column(key="recipe", title="recipe", text=True),
                WORKERS,
                Column(key=METRIC, title="test accuracy", show=four, interval=True),
            ),
            rows=tuple(rows),
        ),
        x="workers",
        y=METRIC,
        series="recipe",
        zero=False,
    )


def _by_epoch(runs: Sequence[Trained]) -> Figure:
    most = max((run.workers for run in runs), default=0)
    curves = {
        f"{run.name}, {plural(run.workers, 'worker')}": run.curve
        for run in runs
        if run.workers in (1, most)
    }
    return by_epoch(
        "accuracy-epochs",
        f"Test accuracy by epoch: one worker, and the recipes on {plural(most, 'worker')}",
        "Mean over seeds.",
        {name: curve for name, curve in curves.items() if curve is not None},
        y_title="test accuracy",
    )

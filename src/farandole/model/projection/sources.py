"""Where a projection's halves come from: fits of steps and epochs, and the metric by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farandole.model.accuracy import collect_metrics
from farandole.model.info.scaling import ScalingInfo
from farandole.model.measured import Measured
from farandole.model.noise import NoiseScale
from farandole.model.projection.asked import Asked
from farandole.model.projection.epochs.curve import fit_epochs
from farandole.model.projection.epochs.schedule import Schedule, schedule_of
from farandole.model.projection.epochs.slide import NotProjectable, ReferenceRuns, project_accuracy
from farandole.model.projection.joined import MetricAt
from farandole.model.projection.outlook import Goal
from farandole.model.projection.records import EpochFit, EpochRow, Projected
from farandole.model.projection.rows import Basis
from farandole.model.projection.steps.by_link import Fit
from farandole.model.projection.steps.choose import make_fit
from farandole.model.series import Series
from farandole.study.records import Study

AS_SET = "as your script sets it"
NO_DECAY = (
    "No learning rate was recorded: it is taken not to decay. From inside of a decaying schedule "
    "epochs to the goal at other global batches could not be projected."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that was fitted, and what was taken for granted."""

    fit_steps: Fit
    epochs: EpochFit | None
    metric: str | None
    metric_at: MetricAt
    recipe: str
    why_not: Callable[[], str]
    """Why the metric could not be told somewhere; "" where it could."""
    told_batches: frozenset[int] | None = None
    """Global batches whose epochs to the goal can be told; None: any."""
    not_told: str = ""
    """Why others cannot."""
    assumptions: tuple[str, ...] = ()
    """Of the learning rate."""


class Remembered:
    """An EpochFit that finds the epochs of a batch once: it takes an integral."""

    def __init__(self, fit: EpochFit) -> None:
        self._fit = fit
        self._known: dict[int, Projected] = {}
        self.critical_batch = fit.critical_batch
        self.assumptions = fit.assumptions

    def at(self, global_batch: int) -> Projected:
        """Return the epochs that a global batch needs."""
        if global_batch not in self._known:
            self._known[global_batch] = self._fit.at(global_batch)
        return self._known[global_batch]


def gather(
    study: Study,
    info: ScalingInfo,
    basis: Basis,
    asked: Asked,
    goal: Goal | None,
    runs: Sequence[EpochRow],
) -> Sources:
    """Fit what can be fitted.

    Args:
        study: its records.
        info: what `analyse` found.
        basis: step times to stand on.
        asked: the question; its what-ifs change the fit of the steps.
        goal: where times end.
        runs: epochs to the goal.
    """
    noise = _noise(info, basis)
    epochs = Remembered(fit_epochs(runs, noise=noise)) if runs else None
    schedule = schedule_of(launch for found in basis.cells for launch in found.launches)
    metric = goal.metric if goal and goal.metric else info.main_metric
    accuracy = _Accuracy(basis.cells, metric, epochs, schedule)
    decays = epochs is not None and schedule.kind == "decaying"
    taken = epochs is not None and schedule.kind == "unknown"
    return Sources(
        fit_steps=make_fit(study, basis, asked),
        epochs=epochs,
        metric=metric if accuracy.answers else None,
        metric_at=accuracy.at,
        recipe=_recipe(basis),
        why_not=lambda: accuracy.why_not,
        told_batches=frozenset(row.global_batch for row in runs if row.reached) if decays else None,
        not_told=_not_told(goal, schedule) if decays and goal is not None else "",
        assumptions=(NO_DECAY,) if taken else (),
    )


def _not_told(goal: Goal, schedule: Schedule) -> str:
    return (
        f"How many epochs other global batches take {goal.words} is not projectable from this run: "
        f"{schedule.detail}, and a point inside of a decaying schedule is not the end of a shorter "
        "one. Where the global batch was not measured, speed alone is told; runs at a constant "
        "rate would tell more."
    )


class _Accuracy:
    """The metric after as many epochs as the measured runs had, by global batch."""

    def __init__(
        self,
        cells: Sequence[Measured],
        metric: str | None,
        epochs: EpochFit | None,
        schedule: Schedule,
    ) -> None:
        self._epochs, self._schedule = epochs, schedule
        self._references = _references(cells, metric) if metric else []
        ends = [series.epochs[-1] for runs in self._references for series in runs.seeds]
        self._budget = min(ends, default=0.0)
        self.why_not = ""

    @property
    def answers(self) -> bool:
        """Whether there is anything to slide along."""
        return bool(self._references) and self._epochs is not None

    def at(self, global_batch: int) -> Projected | None:
        """Return the metric, None where it cannot be told; `why_not` says why."""
        if self._epochs is None or not self._references:
            return None
        found = project_accuracy(
            self._references,
            self._epochs,
            global_batch=global_batch,
            epochs=self._budget,
            schedule=self._schedule,
        )
        if isinstance(found, NotProjectable):
            self.why_not = self.why_not or found.reason
            return None
        return found


def _references(cells: Sequence[Measured], metric: str) -> list[ReferenceRuns]:
    metrics = collect_metrics(cells)
    by_batch: dict[int, list[Series]] = {}
    for found in cells:
        for series in metrics.get(found.cell, {}).get(metric, ()):
            # One value is no curve to slide along.
            if found.global_batch and not series.by_step and len(series.epochs) > 1:
                by_batch.setdefault(found.global_batch, []).append(series)
    return [
        ReferenceRuns(global_batch=batch, seeds=tuple(seeds)) for batch, seeds in by_batch.items()
    ]


def _noise(info: ScalingInfo, basis: Basis) -> NoiseScale | None:
    """Return the noise scale of the cell in which most steps were sampled."""
    known = {found.cell for found in basis.cells}
    found = [row.noise for row in info.noise if row.cell in known]
    return max(found, key=lambda noise: noise.measurements, default=None)


def _recipe(basis: Basis) -> str:
    named = {dict(found.cell.params).get("recipe") for found in basis.cells}
    if len(named) == 1 and None not in named:
        return f"recipe {named.pop()}"
    return AS_SET

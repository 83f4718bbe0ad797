"""Accuracy by epoch, in training and in validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.format import brief, listed, plural, whole
from farandole.labs import columns
from farandole.labs.columns import four
from farandole.labs.evidence import NO_INTERVALS, matching, without_intervals
from farandole.labs.lab import Answered, Found
from farandole.labs.models.weights import PRETRAINED as FROM_EXTRA
from farandole.labs.settings import settings_of
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.questions import ACCURACY, PRETRAINED, TRAINING, VALIDATION
from farandole.model.info.metric import MetricCurve
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Both accuracies after so many epochs."""

    number: float
    """How many are done."""
    training: Estimate | None
    validation: Estimate | None
    time_s: float | None
    """Since the launch began."""
    seeds: int


def epochs_of(info: ScalingInfo, workers: int) -> tuple[Epoch, ...]:
    """Return the course of a study's runs on so many workers."""
    curves: Mapping[str, MetricCurve] = {
        curve.metric: curve for curve in matching(info.metric_curves, workers=workers)
    }
    points = {
        name: {point.epoch: point for point in curves[name].points}
        for name in (TRAINING, VALIDATION)
        if name in curves
    }
    numbers = sorted({epoch for by_epoch in points.values() for epoch in by_epoch})
    found = []
    for epoch in numbers:
        training = points.get(TRAINING, {}).get(epoch)
        validation = points.get(VALIDATION, {}).get(epoch)
        either = validation or training
        found.append(
            Epoch(
                number=epoch,
                training=training.value if training else None,
                validation=validation.value if validation else None,
                time_s=either.time_s if either else None,
                seeds=either.seeds if either else 0,
            )
        )
    return tuple(found)


def courses(found: Found, study: str = "workers") -> dict[int, tuple[Epoch, ...]]:
    """Return the course of training by number of workers."""
    info = found.studies.get(study)
    counts = sorted({row.cell.workers for row in info.metrics}) if info else []
    return {number: epochs_of(info, number) for number in counts if info}


def answer_accuracy(found: Found, kind: Kind) -> Answered:
    """Answer by the metrics that Keras records at the end of each epoch."""
    by_workers = courses(found)
    table = Table(
        name=ACCURACY.key,
        title="Accuracy by epoch and workers",
        columns=(
            columns.WORKERS,
            Column(key="epoch", title="epoch", show=brief),
            Column(key="training", title="training", show=four, interval=True),
            Column(key="validation", title="validation", show=four, interval=True),
            Column(key="seeds", title="seeds", show=whole),
        ),
        rows=tuple(
            (workers, epoch.number, epoch.training, epoch.validation, epoch.seeds)
            for workers, epochs in by_workers.items()
            for epoch in epochs
        ),
        notes=(
            "Training: the mean over an epoch's batches as they were trained on, augmented. "
            "Validation: after the epoch, as the images are. So the first may be the lower one.",
        ),
    )
    figures = tuple(
        lines(
            f"{key}-by-epoch",
            f"{key.capitalize()} accuracy by epoch",
            caption,
            table,
            x="epoch",
            y=key,
            y_title=f"{key} accuracy",
            series="workers",
            x_log=False,
            zero=False,
        )
        for key, caption in (
            ("training", "During the epoch, on augmented images."),
            ("validation", "After the epoch, on images that nobody trained on."),
        )
    )
    return Answered(
        question=ACCURACY,
        sentences=(*_said(by_workers), *_weights_words(found, kind), *_lab_words(found, kind)),
        tables=(table,),
        figures=figures,
    )


def _said(by_workers: Mapping[int, tuple[Epoch, ...]]) -> list[str]:
    said = []
    last: list[Any] = []
    for workers, epochs in by_workers.items():
        begin, end = epochs[0], epochs[-1]
        if begin.validation is None or end.validation is None:
            continue
        last.append(end.validation)
        training = "" if end.training is None else f" (training {four(end.training.value)})"
        said.append(
            f"{plural(workers, 'worker')}: validation goes from {four(begin.validation.value)} "
            f"after the first epoch to {four(end.validation.value)} after {brief(end.number)}"
            f"{training}."
        )
    if not said:
        return ["Accuracy was not measured: no launch ran to its end."]
    if without_intervals(last):
        said.append(NO_INTERVALS)
    return said


def _weights_words(found: Found, kind: Kind) -> list[str]:
    """Say what the base network began with, as the script recorded it."""
    ends = [one.final(PRETRAINED) for one in settings_of(found, "workers")]
    known = [end.value for end in ends if end is not None]
    if not known:
        return []
    asked = found.asked.weights
    if min(known) > 0:
        file = None if asked in (None, FROM_EXTRA) else asked
        weights = f"the weights of {Path(file).name}" if file else "weights pretrained on ImageNet"
    else:
        why = (
            "because no pretrained ones are installed (the extra pretrained has them)"
            if asked is None
            else "as asked for (--weights none)"
        )
        weights = (
            f"random weights, {why}: transfer learning gains from weights that were trained before"
        )
    return [f"The base network is {kind.base} and began with {weights}."]


def _lab_words(found: Found, kind: Kind) -> list[str]:
    """Say with which accuracies the lab's runs ended."""
    info = found.published.get(kind.published)
    ends = [
        f"{four(row.final.value)} on {row.cell.workers} {row.cell.device}"
        for row in (info.metrics if info else ())
        if row.metric == VALIDATION and row.final is not None
    ]
    if not ends:
        return []
    return [" ".join(filter(None, (f"The lab's validation ends at {listed(ends)}.", kind.said)))]

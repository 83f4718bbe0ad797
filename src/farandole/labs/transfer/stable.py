"""Epochs to a stable validation accuracy by workers, and which configuration gets there first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.format import brief, listed, plural, seconds, whole
from farandole.labs import columns
from farandole.labs.columns import HERE, LAB, four
from farandole.labs.evidence import counts_in_words, only
from farandole.labs.lab import Answered, Found
from farandole.labs.settings import settings_of
from farandole.labs.transfer.curves import Epoch, epochs_of
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.questions import SOONEST, STABLE, VALIDATION
from farandole.labs.transfer.times import CPU
from farandole.model.info.job import JobTime
from farandole.model.info.metric import MetricRow
from farandole.model.info.scaling import ScalingInfo
from farandole.model.stability import WINDOW
from farandole.report.charts import bars, lines
from farandole.report.table import Column, Table

RULE = (
    f"Stable: the first epoch from which the median of {WINDOW} evaluations is at the level where "
    "the run ends, less the noise of its own evaluations. The lab judged by eye."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stable:
    """When one configuration became stable."""

    source: str
    device: str
    workers: int
    epochs: float | None
    """Until stability; None when it was not reached."""
    of_epochs: float | None
    epoch_s: float | None
    reached_s: float | None
    """Since the training began."""
    validation: float | None
    seeds: int
    never: int
    """Seeds that were not stable by their end."""

    @property
    def series(self) -> str:
        """Where it was measured, and on what."""
        return f"{self.source}, {self.device}"

    @property
    def label(self) -> str:
        """The configuration in words."""
        return f"{self.source}, {self.workers} {self.device}"


def stables(found: Found, kind: Kind) -> list[Stable]:
    """Return the configurations of this machine, then the lab's."""
    return [*_measured(found), *_published(found.published.get(kind.published))]


def answer_stable(found: Found, kind: Kind) -> Answered:
    """Answer by the rule of all studies."""
    rows = stables(found, kind)
    table = Table(
        name=STABLE.key,
        title="Epochs to a stable validation accuracy",
        columns=(
            columns.SOURCE,
            columns.DEVICE,
            columns.WORKERS,
            Column(key="epochs", title="epochs to stability", show=brief),
            Column(key="of_epochs", title="of", show=whole),
            Column(key="validation", title="validation accuracy at the end", show=four),
            Column(key="seeds", title="seeds", show=whole),
            Column(key="never", title="never stable", show=whole),
        ),
        rows=tuple(
            (
                *(row.source, row.device, row.workers, row.epochs, row.of_epochs),
                *(row.validation, row.seeds, row.never),
            )
            for row in rows
        ),
        notes=(RULE,),
    )
    return Answered(
        question=STABLE,
        sentences=tuple(_stable_words(rows)),
        tables=(table,),
        figures=(
            lines(
                "stable-by-workers",
                "Epochs to a stable validation accuracy by workers",
                f"{RULE}",
                _drawn(rows),
                x="workers",
                y="epochs",
                series="series",
                published=tuple(dict.fromkeys(row.series for row in rows if row.source == LAB)),
            ),
        ),
    )


def answer_soonest(found: Found, kind: Kind) -> Answered:
    """Answer by epochs to stability and the time of an epoch."""
    rows = sorted(
        stables(found, kind),
        key=lambda row: (row.source == LAB, math.inf if row.reached_s is None else row.reached_s),
    )
    table = Table(
        name=SOONEST.key,
        title="Time to a stable validation accuracy",
        columns=(
            Column(key="configuration", title="configuration", text=True),
            Column(key="epochs", title="epochs to stability", show=brief),
            Column(key="epoch_s", title="epoch", show=seconds),
            Column(key="reached_s", title="time to stability", show=seconds),
            Column(key="validation", title="validation accuracy at the end", show=four),
        ),
        rows=tuple(
            (row.label, row.epochs, row.epoch_s, row.reached_s, row.validation) for row in rows
        ),
        notes=(
            "Here the time from the first step on, validations included; in the lab epochs x time "
            "of an epoch. More workers than cores have no time.",
        ),
    )
    return Answered(
        question=SOONEST,
        sentences=tuple(_soonest_words(rows, found.asked.cores)),
        tables=(table,),
        figures=(
            bars(
                "time-to-stability",
                "Time to a stable validation accuracy",
                "The soonest first, this machine's before the lab's; on a logarithmic axis.",
                table,
                x="configuration",
                y="reached_s",
                log=True,
            ),
        ),
    )


def _measured(found: Found) -> list[Stable]:
    info = found.studies.get("workers")
    rows = []
    for one in settings_of(found, "workers") if info else ():
        assert info is not None
        metric = _validation(info, one.workers)
        job = only(info.job_times, workers=one.workers)
        course = epochs_of(info, one.workers)
        stable = metric.stable_epoch if metric else None
        rows.append(
            Stable(
                source=HERE,
                device=CPU,
                workers=one.workers,
                epochs=stable,
                of_epochs=course[-1].number if course else one.epochs,
                epoch_s=job.epoch_s.value if job and job.epoch_s else None,
                reached_s=_reached_s(course, stable, job),
                validation=metric.final.value if metric and metric.final else None,
                seeds=one.seeds,
                never=metric.censored if metric else 0,
            )
        )
    return rows


def _validation(info: ScalingInfo, workers: int) -> MetricRow | None:
    return only([row for row in info.metrics if row.metric == VALIDATION], workers=workers)


def _reached_s(course: Sequence[Epoch], stable: float | None, job: JobTime | None) -> float | None:
    """Return the time to stability from the first step on: recorded, or else computed."""
    if stable is None or job is None:
        return None
    recorded = next((epoch.time_s for epoch in course if epoch.number == stable), None)
    if recorded is not None:
        return max(0.0, recorded - (job.startup_s or 0.0))
    return stable * job.epoch_s.value if job.epoch_s else None


def _published(info: ScalingInfo | None) -> list[Stable]:
    rows = []
    for cell in (row.cell for row in (info.cells if info else ())):
        assert info is not None
        metric = next((r for r in info.metrics if (r.cell, r.metric) == (cell, VALIDATION)), None)
        job = next((one for one in info.job_times if one.cell == cell), None)
        rows.append(
            Stable(
                source=LAB,
                device=cell.device or "GPU",
                workers=cell.workers,
                epochs=metric.stable_epoch if metric else None,
                of_epochs=job.epochs if job else None,
                epoch_s=job.epoch_s.value if job and job.epoch_s else None,
                reached_s=metric.stable_s if metric else None,
                validation=metric.final.value if metric and metric.final else None,
                seeds=1,
                never=0,
            )
        )
    return rows


def _drawn(rows: list[Stable]) -> Table:
    return Table(
        name="stable-by-workers",
        title="Epochs to a stable validation accuracy",
        columns=(
            Column(key="series", title="measured", text=True),
            columns.WORKERS,
            Column(key="epochs", title="epochs to stability", show=brief),
        ),
        rows=tuple((row.series, row.workers, row.epochs) for row in rows if row.epochs is not None),
    )


def per_doubling(few: Stable, many: Stable) -> float | None:
    """Return how many epochs each doubling of the workers adds between two configurations."""
    if few.epochs is None or many.epochs is None or few.workers >= many.workers:
        return None
    return (many.epochs - few.epochs) / math.log2(many.workers / few.workers)


def _stable_words(rows: list[Stable]) -> list[str]:
    here = [row for row in rows if row.source == HERE]
    known = [row for row in here if row.epochs is not None]
    said = []
    if known:
        each = [f"{brief(row.epochs)} on {plural(row.workers, 'worker')}" for row in known]
        said.append(f"Epochs to a stable validation accuracy here: {listed(each)}.")
    never = [row.workers for row in here if row.epochs is None]
    if never:
        said.append(
            f"{counts_in_words(never)} did not become stable: too few epochs, or still rising."
        )
    if not here:
        said.append("No launch here ran to its end.")
    added = per_doubling(known[0], known[-1]) if len(known) > 1 else None
    if added is not None:
        said.append(f"That is {added:+.1f} epochs for each doubling of the workers here.")
    return said + _lab_stable_words([row for row in rows if row.source == LAB])


def _lab_stable_words(lab: list[Stable]) -> list[str]:
    known = [row for row in lab if row.epochs is not None]
    if not known:
        return ["The lab names no such epochs for this data set."] if lab else []
    each = [f"{brief(row.epochs)} on {row.workers} {row.device}" for row in known]
    said = [f"The lab, by eye: {listed(each)}."]
    slopes = []
    for device in dict.fromkeys(row.device for row in known):
        own = [row for row in known if row.device == device]
        added = per_doubling(own[0], own[-1])
        if added is not None:
            slopes.append(f"{added:.0f} on {device}")
    if slopes:
        said.append(f"Each doubling of the workers adds epochs there: {listed(slopes)}.")
    return said


def _soonest_words(rows: list[Stable], cores: int) -> list[str]:
    said: list[str] = []
    for source, words in ((HERE, "Here"), (LAB, "In the lab")):
        timed: list[Any] = [
            row for row in rows if row.source == source and row.reached_s is not None
        ]
        if not timed:
            if any(row.source == source for row in rows) or source == HERE:
                said.append(f"{words} no configuration has both a stable accuracy and a time.")
            continue
        best, last = timed[0], timed[-1]
        sentence = (
            f"{words} {plural(best.workers, 'worker')} on {best.device} "
            f"{'is' if best.workers == 1 else 'are'} stable soonest, after "
            f"{seconds(best.reached_s)} and {brief(best.epochs)} epochs"
        )
        if last is not best:
            sentence += (
                f"; last {'is' if last.workers == 1 else 'are'} {plural(last.workers, 'worker')} "
                f"on {last.device} with {seconds(last.reached_s)} and {brief(last.epochs)}"
            )
        said.append(f"{sentence}.")
    void = [row.workers for row in rows if row.source == HERE and row.workers > cores]
    if void:
        said.append(
            f"{counts_in_words(sorted(void))} have no time that counts on {plural(cores, 'core')}."
        )
    if len([row for row in rows if row.reached_s is not None]) > 1:
        said.append(
            "An epoch gets shorter with more workers, and more epochs may be needed: what counts "
            "is the product."
        )
    return said

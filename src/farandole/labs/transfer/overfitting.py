"""Overfitting: how far training accuracy lies above validation accuracy at the end."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.format import brief, listed, plural
from farandole.labs.columns import HERE, LAB, four, signed
from farandole.labs.lab import Answered, Found
from farandole.labs.transfer.curves import courses
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.questions import OVERFITTING, TRAINING, VALIDATION
from farandole.labs.transfer.times import CPU
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import ACCURACY_MARGIN
from farandole.model.verdicts.training import GAP_MARGINS
from farandole.report.charts import bars
from farandole.report.table import Column, Table

LIMIT = GAP_MARGINS * ACCURACY_MARGIN
"""From this gap on a network counts as overfitted, here as in every study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The ends of training of one configuration."""

    source: str
    device: str
    workers: int
    training: float | None
    validation: float | None
    best_epoch: float | None = None
    """With the highest validation accuracy."""
    best: float | None = None

    @property
    def gap(self) -> float | None:
        """Training less validation."""
        if self.training is None or self.validation is None:
            return None
        # To the digits shown: 0.8 - 0.75 is a hair more than 0.05.
        return round(self.training - self.validation, 4)

    @property
    def label(self) -> str:
        """The configuration in words."""
        return f"{self.source}, {self.workers} {self.device}"


def fits(found: Found, kind: Kind) -> list[Fit]:
    """Return the ends of this machine's runs, then of the lab's."""
    return [*_measured(found), *_published(found.published.get(kind.published))]


def answer_overfitting(found: Found, kind: Kind) -> Answered:
    """Answer by the gap between both accuracies, and by where validation was best."""
    rows = fits(found, kind)
    table = Table(
        name=OVERFITTING.key,
        title="Training and validation accuracy at the end",
        columns=(
            Column(key="configuration", title="configuration", text=True),
            Column(key="training", title="training", show=four),
            Column(key="validation", title="validation", show=four),
            Column(key="gap", title="gap (points)", show=signed),
            Column(key="best_epoch", title="best epoch", show=brief),
            Column(key="best", title="validation there", show=four),
            Column(key="overfitted", title="overfitted", text=True),
        ),
        rows=tuple(
            (
                *(row.label, row.training, row.validation, row.gap),
                *(row.best_epoch, row.best, _verdict(row.gap)),
            )
            for row in rows
        ),
        notes=(
            f"A gap of more than {100 * LIMIT:.0f} points counts as overfitting. Training accuracy "
            "is of augmented images, and the mean over the last epoch.",
        ),
    )
    return Answered(
        question=OVERFITTING,
        sentences=tuple(_said(rows)),
        tables=(table,),
        figures=(
            bars(
                "gap-by-configuration",
                "Training less validation accuracy",
                "At the end of training, in points; the longer the bar, the more was learned by "
                "heart. Below zero: augmented images are harder than those of the validation.",
                _gaps(rows),
                x="configuration",
                y="gap",
            ),
        ),
    )


def _measured(found: Found) -> list[Fit]:
    rows = []
    for workers, epochs in courses(found).items():
        scored = [(one.validation.value, one.number) for one in epochs if one.validation]
        best = max(scored, key=lambda pair: (pair[0], -pair[1]), default=None)
        end = epochs[-1]
        rows.append(
            Fit(
                source=HERE,
                device=CPU,
                workers=workers,
                training=end.training.value if end.training else None,
                validation=end.validation.value if end.validation else None,
                best_epoch=best[1] if best else None,
                best=best[0] if best else None,
            )
        )
    return rows


def _published(info: ScalingInfo | None) -> list[Fit]:
    cells = [row.cell for row in (info.cells if info else ())]
    ends = {
        (row.cell, row.metric): row.final.value
        for row in (info.metrics if info else ())
        if row.final is not None
    }
    return [
        Fit(
            source=LAB,
            device=cell.device or "GPU",
            workers=cell.workers,
            training=ends.get((cell, TRAINING)),
            validation=ends.get((cell, VALIDATION)),
        )
        for cell in cells
        if (cell, VALIDATION) in ends
    ]


def _verdict(gap: float | None) -> str:
    if gap is None:
        return "not known"
    return "yes" if gap > LIMIT else "no"


def _gaps(rows: list[Fit]) -> Table:
    return Table(
        name="gap-by-configuration",
        title="Training less validation accuracy",
        columns=(
            Column(key="configuration", title="configuration", text=True),
            Column(key="gap", title="gap (points)", show=brief),
        ),
        rows=tuple((row.label, 100 * row.gap) for row in rows if row.gap is not None),
    )


def _said(rows: list[Fit]) -> list[str]:
    said = []
    here = [row for row in rows if row.source == HERE and row.gap is not None]
    if not here:
        said.append("It cannot be told: no launch here ran to its end with both accuracies.")
    else:
        over = [row for row in here if row.gap is not None and row.gap > LIMIT]
        each = [f"{signed(row.gap)} points on {plural(row.workers, 'worker')}" for row in here]
        what = (
            "The network overfits here"
            if len(over) == len(here)
            else "The network overfits on some numbers of workers"
            if over
            else "The network does not overfit here"
        )
        said.append(
            f"{what}: training ends above validation by {listed(each)}, where more than "
            f"{100 * LIMIT:.0f} count as overfitting."
        )
        most = here[-1]
        if most.best is not None and most.validation is not None and most.best_epoch is not None:
            lost = most.best - most.validation
            ends = f"{100 * lost:.2f} points above the end" if lost > 0 else "and ends there"
            said.append(
                f"On {plural(most.workers, 'worker')} validation was best after epoch "
                f"{brief(most.best_epoch)} ({four(most.best)}), {ends}."
            )
    lab = [row for row in rows if row.source == LAB and row.gap is not None]
    if lab:
        gaps = [100 * row.gap for row in lab if row.gap is not None]
        said.append(
            f"The lab's runs end with gaps of {min(gaps):.2f} to {max(gaps):.2f} points; between "
            f"numbers of workers and devices they differ by {max(gaps) - min(gaps):.2f}."
        )
    elif any(row.source == LAB for row in rows):
        said.append("The lab gives no training accuracy: of its runs it cannot be told.")
    return said

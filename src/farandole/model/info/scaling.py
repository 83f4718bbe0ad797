"""Everything that a study says, in one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from farandole.model.info.answer import Answer
from farandole.model.info.apart import ApartRow
from farandole.model.info.batches import BatchSweep
from farandole.model.info.communication import Communication, LinkPoint
from farandole.model.info.cores import SplitTable
from farandole.model.info.curve import Curve, Today
from farandole.model.info.job import Cost, JobTime
from farandole.model.info.launches import CellRow, LaunchRow
from farandole.model.info.metric import MetricCurve, MetricRow
from farandole.model.info.noise import NoiseRow
from farandole.model.info.step import StepSplit
from farandole.model.info.utilisation import UtilisationRow, UtilisationSeries
from farandole.model.info.verdict import Verdict, Void

if TYPE_CHECKING:
    from farandole.model.projection.advice import Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInfo:
    """Everything that a study says."""

    label: str
    answer: Answer
    curves: tuple[Curve, ...]
    """The main one first."""
    today: Today | None
    splits: tuple[StepSplit, ...]
    communication: tuple[Communication, ...]
    link: tuple[LinkPoint, ...]
    utilisation: tuple[UtilisationRow, ...]
    utilisation_series: tuple[UtilisationSeries, ...]
    batch_sweeps: tuple[BatchSweep, ...]
    split_tables: tuple[SplitTable, ...]
    job_times: tuple[JobTime, ...]
    metric_curves: tuple[MetricCurve, ...]
    metrics: tuple[MetricRow, ...]
    main_metric: str | None
    costs: tuple[Cost, ...]
    cells: tuple[CellRow, ...]
    launches: tuple[LaunchRow, ...]
    verdicts: tuple[Verdict, ...]
    voids: tuple[Void, ...]
    notes: tuple[str, ...]
    """What could not be measured or was left out, in sentences."""
    margins: Mapping[str, float]
    """Of the equivalence tests: speed (relative), and the main metric's (absolute)."""
    machine: Mapping[str, object]
    complete: bool
    command: tuple[str, ...] = ()
    """As the user gave it, with its placeholders."""
    spec: Mapping[str, object] = field(default_factory=dict)
    """What was asked for: see docs/study-folder.md."""
    created: str = ""
    """ISO 8601, UTC."""
    apart: tuple[ApartRow, ...] = ()
    """What workers of a host cost each other, one for each number of them that was measured."""
    noise: tuple[NoiseRow, ...] = ()
    """Of cells with 2 workers or more, or with several batches in an update."""
    projection: Projection | None = None
    """What more workers would give; None where nobody asked."""

"""Several studies side by side."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.verdict import Verdict
from farandole.model.statistics import Estimate
from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One group and worker count of one study, beside others."""

    study: str
    label: str
    """The cell in words."""
    cell: Cell
    throughput: Estimate | None
    unit: str
    speedup: Estimate | None
    """Within its own study."""
    final_metric: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several studies side by side, by label."""

    infos: tuple[ScalingInfo, ...]
    rows: tuple[ComparisonRow, ...]
    ratios: tuple[tuple[str, str, str, Estimate], ...]
    """(study, other study, cell label, throughput over the other's); empty when refused."""
    refused: str | None
    """Why ratios between studies are not given; None when they are."""
    metric: str | None
    verdicts: tuple[Verdict, ...]

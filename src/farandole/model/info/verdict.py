"""Findings in sentences: what to look at, and what makes a study void."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from farandole.study.records import Cell

Severity = Literal["void", "warn", "note", "good"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence with its evidence and what to do."""

    kind: str
    """The rule's name: communication_bound, overfitting, ..."""
    severity: Severity
    sentence: str
    action: str
    evidence: Mapping[str, float | str]
    labels: tuple[str, ...] = ()
    """Of the cells that it speaks of."""


VoidKind = Literal["not_averaged", "weights_differ", "same_samples", "work_unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """A reason why a speedup is not shown: mostly, workers did not train together."""

    kind: VoidKind
    cell: Cell
    label: str
    launches: tuple[str, ...]
    sentence: str
    mend: str
    evidence: Mapping[str, float | str]

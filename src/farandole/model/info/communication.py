"""Communication of a step, and the link's own speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication of a cell: measured, and derived as the labs did."""

    cell: Cell
    label: str
    gradient_bytes: int | None
    """Payload per step and rank."""
    measured_s: float | None
    """Per step: the transfer as the rank that waited least saw it, hidden parts included."""
    exposed_s: float | None
    """Per step: what training waited for, mean over ranks."""
    derived_s: float | None
    """Per step: T(N) - T(1) at the same batch per worker; T(N) - T(1)/N at the same global one."""
    contention_s: float | None = None
    """Per step: what of T(N) - T(1) N workers cost each other without sending anything."""
    derived_epoch_s: float | None
    """Per epoch: T(N) - T(1)/N, the labs' figure."""
    bus_bytes_per_s: float | None
    """2(N-1)/N x gradient bytes / measured_s."""
    derived_bus_bytes_per_s: float | None
    peak_bytes_per_s: float | None
    utilisation: float | None
    """bus_bytes_per_s / peak_bytes_per_s."""
    bytes_by_kind: Mapping[str, float]
    """Payload per step over all ranks, by kind; empty when not measured."""
    total_bytes_by_kind: Mapping[str, int]
    """Over the whole launch and all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPoint:
    """One all-reduce of the calibration."""

    workers: int
    bytes: int
    seconds: float
    bus_bytes_per_s: float
    utilisation: float | None

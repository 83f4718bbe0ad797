"""A figure: a chart's specification, the words around it and the table under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.report.table import Table

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart, drawn from one specification on the page and on paper."""

    name: str
    """File name without ending; also the chart's id on the page."""
    title: str
    caption: str
    spec: Spec
    """Vega-Lite without configuration: the theme is added where it is drawn."""
    table: Table
    alt: str
    """What a reader who cannot see the chart should know of it."""
    wide: bool = False
    """Whether it wants the page's whole width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A figure that has no data, and what would give them."""

    title: str
    hint: str
